// The kernel table in use.
#pragma once
#include "cpu/isa/kernel_set.h"

namespace ds4 {

/// Chosen at the first call. Throws std::invalid_argument when DS4_CPU_ISA names an unknown or missing level.
const KernelSet& kernels();

}  // namespace ds4
