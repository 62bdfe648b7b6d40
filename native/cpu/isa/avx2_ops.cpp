// The ops compiled for avx2.
#if defined(__AVX2__) && defined(__FMA__)
#define DS4_LEVEL ops_avx2
#include "cpu/isa/ops_impl.h"

namespace ds4 {
const OpSet* avx2Ops() { return &ops_avx2::kOps; }
}  // namespace ds4
#else
#include "cpu/isa/op_set.h"

namespace ds4 {
const OpSet* avx2Ops() { return nullptr; }
}  // namespace ds4
#endif
