// The ops compiled for avx512.
#if defined(__AVX512VNNI__) && defined(__AVX512VBMI__) && defined(__GFNI__)
#define DS4_LEVEL ops_avx512
#include "cpu/isa/ops_impl.h"

namespace ds4 {
const OpSet* avx512Ops() { return &ops_avx512::kOps; }
}  // namespace ds4
#else
#include "cpu/isa/op_set.h"

namespace ds4 {
const OpSet* avx512Ops() { return nullptr; }
}  // namespace ds4
#endif
