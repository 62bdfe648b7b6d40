// The lattice grids of the IQ types, unpacked at compile time from their digit strings. Byte j of an entry is value j.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "common/lattice-digits.h"

namespace ds4 {

namespace detail {

template <typename Word, size_t Entries, size_t Levels>
constexpr std::array<Word, Entries> expandDigits(const char* digits, const uint8_t (&levels)[Levels]) {
  std::array<Word, Entries> grid{};
  for (size_t entry = 0; entry < Entries; ++entry) {
    for (size_t j = 0; j < sizeof(Word); ++j) {
      const Word level = levels[digits[entry * sizeof(Word) + j] - '0'];
      grid[entry] |= level << (8 * j);
    }
  }
  return grid;
}

inline constexpr uint8_t kThreeLevels[3] = {8, 25, 43};
inline constexpr uint8_t kEightLevels[8] = {4, 12, 20, 28, 36, 44, 52, 62};

}  // namespace detail

static_assert(sizeof(kIq2XxsDigits) == 256 * 8 + 1 && sizeof(kIq2XsDigits) == 512 * 8 + 1);
static_assert(sizeof(kIq3XxsDigits) == 256 * 4 + 1);

/// Eight values 8, 25 or 43 per entry.
inline constexpr std::array<uint64_t, 256> kIq2XxsGrid =
    detail::expandDigits<uint64_t, 256>(kIq2XxsDigits, detail::kThreeLevels);
/// Eight values 8, 25 or 43 per entry.
inline constexpr std::array<uint64_t, 512> kIq2XsGrid =
    detail::expandDigits<uint64_t, 512>(kIq2XsDigits, detail::kThreeLevels);
/// Four values 4..62 per entry.
inline constexpr std::array<uint32_t, 256> kIq3XxsGrid =
    detail::expandDigits<uint32_t, 256>(kIq3XxsDigits, detail::kEightLevels);

}  // namespace ds4
