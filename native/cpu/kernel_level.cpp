// Chooses the instruction-set level once: the best the processor has, or the one DS4_CPU_ISA names.
#include "cpu/kernel_level.h"

#include "cpu/isa/op_set.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace ds4 {

namespace {

#if defined(__x86_64__)
bool hasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

bool hasAvx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("gfni");
}
#else
bool hasAvx2() { return false; }
bool hasAvx512() { return false; }
#endif

#if defined(__aarch64__) && defined(__linux__)
bool hasNeonDot() { return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0; }
#else
bool hasNeonDot() { return true; }  // every 64-bit Apple processor; elsewhere the set is not compiled in
#endif

const KernelSet* usable(const KernelSet* set, bool supported) { return supported ? set : nullptr; }

const KernelSet* find(const std::string& level) {
  if (level == "generic") return genericKernels();
  if (level == "avx2") return usable(avx2Kernels(), hasAvx2());
  if (level == "avx512") return usable(avx512Kernels(), hasAvx512());
  if (level == "neon") return usable(neonKernels(), hasNeonDot());
  throw std::invalid_argument("DS4_CPU_ISA: expected generic, avx2, avx512 or neon, got \"" + level + "\"");
}

const KernelSet* choose() {
  if (const char* wanted = std::getenv("DS4_CPU_ISA"); wanted != nullptr && *wanted != 0) {
    const KernelSet* set = find(wanted);
    if (set == nullptr) throw std::invalid_argument(std::string("DS4_CPU_ISA: this processor or build has no ") + wanted);
    return set;
  }
  for (const char* level : {"avx512", "neon", "avx2"}) {
    if (const KernelSet* set = find(level)) return set;
  }
  return genericKernels();
}

}  // namespace

const KernelSet& kernels() {
  static const KernelSet* set = choose();
  return *set;
}

const OpSet& ops() {
  static const OpSet* set = [] {
    const std::string level = kernels().name;
    const OpSet* found = level == "avx512" ? avx512Ops() : level == "avx2" ? avx2Ops() : level == "neon" ? neonOps() : nullptr;
    return found ? found : genericOps();
  }();
  return *set;
}

const char* kernelLevelName() { return kernels().name; }

}  // namespace ds4
