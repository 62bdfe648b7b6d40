// Builds a search once per register width and picks one at run time.
#pragma once

namespace ds4 {

enum class VectorLevel { plain, avx2, avx512 };

/// What this processor has, or less where DS4_CPU_ISA asks for it. All levels give the same bytes.
VectorLevel vectorLevel();

}  // namespace ds4

#if defined(__x86_64__)
#define DS4_LEVEL_CASES(search)                                                                                    \
  __attribute__((target("avx512f"))) static void search##Avx512(const float* values, const float* importance,      \
                                                                int64_t blocks, uint8_t* out) {                    \
    search<64>(values, importance, blocks, out);                                                                   \
  }                                                                                                                \
  __attribute__((target("avx2"))) static void search##Avx2(const float* values, const float* importance,           \
                                                           int64_t blocks, uint8_t* out) {                         \
    search<32>(values, importance, blocks, out);                                                                   \
  }
#define DS4_LEVEL_CHOICE(search)                                         \
  if (vectorLevel() == VectorLevel::avx512) return search##Avx512;       \
  if (vectorLevel() == VectorLevel::avx2) return search##Avx2;
#else
#define DS4_LEVEL_CASES(search)
#define DS4_LEVEL_CHOICE(search)
#endif

/// Defines the quantizer `name` from a template `search<register bytes>` that is inlined always.
#define DS4_DEFINE_AT_LEVELS(name, search)                                                               \
  DS4_LEVEL_CASES(search)                                                                                \
  static void search##Plain(const float* values, const float* importance, int64_t blocks, uint8_t* out) { \
    search<16>(values, importance, blocks, out);                                                         \
  }                                                                                                      \
  static QuantizeBlocks search##Choice() {                                                               \
    DS4_LEVEL_CHOICE(search)                                                                             \
    return search##Plain;                                                                                \
  }                                                                                                      \
  void name(const float* values, const float* importance, int64_t blocks, uint8_t* out) {                \
    static const QuantizeBlocks chosen = search##Choice();                                               \
    chosen(values, importance, blocks, out);                                                             \
  }
