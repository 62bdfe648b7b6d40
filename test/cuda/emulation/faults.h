// What the processor or the compiler's checks find in a kernel becomes the launch's failure instead of the end of the
// process: addresses outside of all memory, misaligned loads and stores, indices beyond an array.
#pragma once

namespace emulation {

/// Once: from now on, faults of kernels are caught; others are left to whoever was asked before.
void catchFaults();
/// By each thread that runs kernels: gives it a stack for signals.
void reportFaultsOfThisThread();

}  // namespace emulation
