#include "cpu/isa/kernel_set.h"
namespace ds4 {
const KernelSet* avx2Kernels() { return nullptr; }
}  // namespace ds4
