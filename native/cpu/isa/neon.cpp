#include "cpu/isa/kernel_set.h"
namespace ds4 {
const KernelSet* neonKernels() { return nullptr; }
}  // namespace ds4
