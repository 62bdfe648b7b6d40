#include "quantize/levels.h"

#include <cstdlib>
#include <string_view>

namespace ds4 {

VectorLevel vectorLevel() {
#if defined(__x86_64__)
  const char* asked = std::getenv("DS4_CPU_ISA");
  const std::string_view wanted = asked == nullptr ? "" : asked;
  __builtin_cpu_init();
  if (wanted == "generic") return VectorLevel::plain;
  if (wanted != "avx2" && __builtin_cpu_supports("avx512f")) return VectorLevel::avx512;
  if (__builtin_cpu_supports("avx2")) return VectorLevel::avx2;
#endif
  return VectorLevel::plain;
}

}  // namespace ds4
