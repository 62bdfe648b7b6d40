// The ops compiled for generic.
#if 1
#define DS4_LEVEL ops_generic
#include "cpu/isa/ops_impl.h"

namespace ds4 {
const OpSet* genericOps() { return &ops_generic::kOps; }
}  // namespace ds4
#else
#include "cpu/isa/op_set.h"

namespace ds4 {
const OpSet* genericOps() { return nullptr; }
}  // namespace ds4
#endif
