// The ops compiled for neon.
#if defined(__ARM_FEATURE_DOTPROD)
#define DS4_LEVEL ops_neon
#include "cpu/isa/ops_impl.h"

namespace ds4 {
const OpSet* neonOps() { return &ops_neon::kOps; }
}  // namespace ds4
#else
#include "cpu/isa/op_set.h"

namespace ds4 {
const OpSet* neonOps() { return nullptr; }
}  // namespace ds4
#endif
