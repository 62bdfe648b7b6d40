// Unpacks panel blocks in AVX2 registers. A register holds half a panel (8 rows) or half a group (8 rows x 4 columns);
// `half` is 0 for rows 0..7 and 1 for rows 8..15. Include only from files compiled for AVX2, FMA and F16C.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "common/lattice-grids.h"
#include "cpu/packed_layout.h"

namespace ds4::avx2 {

inline __m256i load32(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
inline __m128i load16(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
inline __m128i load8(const void* from) { return _mm_loadl_epi64(static_cast<const __m128i*>(from)); }
inline __m256i bytes(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }

inline __m256 loadHalves(const uint8_t* from) { return _mm256_cvtph_ps(load16(from)); }

inline __m256 loadBfloats(const uint8_t* from) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(from)), 16));
}

/// Four activations, repeated for every row.
inline __m256i broadcast4(const int8_t* from) {
  int32_t word;
  std::memcpy(&word, from, 4);
  return _mm256_set1_epi32(word);
}

/// Scales and mins of a Q4_K block as whole numbers, for sub-blocks 0, 1, 2, … in turn.
class Q4KScales {
 public:
  Q4KScales(const uint8_t* panel, int half)
      : low_(panel + q4k_panel::kLow + 8 * half), high_(load32(panel + q4k_panel::kHigh + 32 * half)) {}

  /// Moves on to the next sub-block.
  void next(__m256& scale, __m256& min) {
    const __m256i low = _mm256_cvtepu8_epi32(load8(low_));
    const __m256i top = _mm256_set1_epi32(0x30);
    const __m256i scaleTop = _mm256_and_si256(_mm256_slli_epi32(high_, 4), top);
    const __m256i minTop = _mm256_and_si256(_mm256_srli_epi32(high_, 12), top);
    scale = _mm256_cvtepi32_ps(_mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(15)), scaleTop));
    min = _mm256_cvtepi32_ps(_mm256_or_si256(_mm256_srli_epi32(low, 4), minTop));
    low_ += 16;
    high_ = _mm256_srli_epi32(high_, 2);
  }

 private:
  const uint8_t* low_;
  __m256i high_;
};

/// Half a panel's scale bytes of Q2_K sub-block j.
struct Q2KScales {
  Q2KScales(const uint8_t* panel, int j, int half) {
    pairs_ = _mm256_broadcastsi128_si256(load16(panel + q2k_panel::kScales + 32 * (j / 2) + 16 * half));
    odd_ = j % 2;
  }

  /// Per row the scale (0..15) in both 16-bit halves.
  __m256i scale16() const {
    return _mm256_and_si256(_mm256_shuffle_epi8(pairs_, pattern(0)), _mm256_set1_epi16(15));
  }

  /// Per row the scale times 0, 1, 2, 3 as bytes.
  __m256i multiples() const {
    const __m256i one = _mm256_and_si256(_mm256_shuffle_epi8(pairs_, pattern(-1)), _mm256_set1_epi32(15));
    return _mm256_mullo_epi32(one, _mm256_set1_epi32(0x03020100));
  }

  __m256 min() const {
    return _mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_shuffle_epi8(pairs_, pattern(-1)), 4));
  }

 private:
  // Byte 2 * row + odd to byte 0 of the row's dword, and to byte 2 as well when `twice` is 0; zero elsewhere.
  __m256i pattern(int twice) const {
    const __m256i first = _mm256_setr_epi8(0, -1, 0, -1, 2, -1, 2, -1, 4, -1, 4, -1, 6, -1, 6, -1,  //
                                           8, -1, 8, -1, 10, -1, 10, -1, 12, -1, 12, -1, 14, -1, 14, -1);
    const __m256i single = _mm256_set1_epi32(twice == 0 ? 0 : static_cast<int>(0xffff0000u));
    // Zero stays zero (negative index); 0x80 + 1 is negative as well.
    return _mm256_or_si256(_mm256_add_epi8(first, _mm256_set1_epi16(static_cast<short>(odd_))), single);
  }

  __m256i pairs_;
  int odd_;
};

/// Columns 4g .. 4g+3 of 16 columns of Q2_K, from their 2-bit fields.
template <int Group>
inline __m256i q2kQuants(__m256i fields) {
  return _mm256_and_si256(Group == 0 ? fields : _mm256_srli_epi16(fields, 2 * Group), bytes(3));
}

/// 32 columns of IQ2_XXS for 8 rows. An entry is 8 columns; its 8 bytes per row come from the grid by plain loads, into
/// two registers: rows 0, 1 | 4, 5 and rows 2, 3 | 6, 7.
class Iq2xxsSub {
 public:
  Iq2xxsSub(const uint8_t* panel, int sub, int half) {
    const uint8_t* from = panel + iq2xxs_panel::kSubs + iq2xxs_panel::kSubBytes * sub + 32 * half;
    entries_ = from;
    const __m256i words = load32(from + 64);
    odd = _mm256_cvtepi32_ps(_mm256_or_si256(_mm256_srli_epi32(words, 27), _mm256_set1_epi32(1)));
    // Four fields of seven bits, a byte each; bit 7 becomes their parity.
    const auto field = [&](int entry) {
      return _mm256_and_si256(_mm256_slli_epi32(words, entry), _mm256_set1_epi32(0x7f << (8 * entry)));
    };
    const __m256i seven = _mm256_or_si256(_mm256_or_si256(field(0), field(1)), _mm256_or_si256(field(2), field(3)));
    const __m256i parity = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, -128, 0, -128, 0, 0, -128, -128, 0, 0, -128, 0, -128, -128, 0));
    const __m256i low = _mm256_shuffle_epi8(parity, _mm256_and_si256(seven, bytes(15)));
    const __m256i high = _mm256_shuffle_epi8(parity, _mm256_and_si256(_mm256_srli_epi16(seven, 4), bytes(15)));
    signs_ = _mm256_or_si256(seven, _mm256_xor_si256(low, high));
  }

  /// Magnitudes of an entry; pair 0: rows 0, 1 | 4, 5; pair 1: rows 2, 3 | 6, 7.
  __m256i magnitudes(int entry, int pair) const {
    const uint8_t* index = entries_ + 8 * pair + entry;
    return _mm256_inserti128_si256(_mm256_castsi128_si256(twoRows(index)), twoRows(index + 16), 1);
  }

  /// All ones where the value is negative.
  __m256i negative(int entry, int pair) const {
    const __m256i rows = _mm256_setr_epi64x(0, 0x0404040404040404, 0, 0x0404040404040404);
    const __m256i spread = _mm256_shuffle_epi8(signs_, _mm256_add_epi8(rows, bytes(8 * pair + entry)));
    const __m256i bits = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits);
  }

  __m256 odd;  // 2 * scale + 1

 private:
  static __m128i twoRows(const uint8_t* index) {
    const __m128 first = _mm_castsi128_ps(load8(&kIq2XxsGrid[index[0]]));
    return _mm_castps_si128(_mm_loadh_pi(first, reinterpret_cast<const __m64*>(&kIq2XxsGrid[index[4]])));
  }

  const uint8_t* entries_;
  __m256i signs_;
};

/// 32 columns of MXFP4: doubled values as small whole numbers, exact in float32, and half of the scale.
class Mxfp4Sub {
 public:
  explicit Mxfp4Sub(const uint8_t* panel) : panel_(panel) {}

  /// Twice the values of columns i and 16 + i, 16 rows as signed bytes.
  void codes(int i, __m128i& low, __m128i& high) const {
    const __m128i table = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    const __m128i pair = load16(panel_ + mxfp4_panel::kCodes + 16 * i), fifteen = _mm_set1_epi8(15);
    low = _mm_shuffle_epi8(table, _mm_and_si128(pair, fifteen));
    high = _mm_shuffle_epi8(table, _mm_and_si128(_mm_srli_epi16(pair, 4), fifteen));
  }

  /// 2^(e - 128); NaN for e = 255.
  __m256 halfScale(int half) const {
    const __m256i e = _mm256_cvtepu8_epi32(load8(panel_ + 8 * half));
    // 2^(e - 127) is the exponent field itself, but for the subnormal 2^-127 and for NaN.
    const __m256i zero = _mm256_cmpeq_epi32(e, _mm256_setzero_si256());
    const __m256i top = _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255));
    const __m256i normal = _mm256_blendv_epi8(_mm256_slli_epi32(e, 23), _mm256_set1_epi32(0x00400000), zero);
    const __m256i fixed = _mm256_blendv_epi8(normal, _mm256_set1_epi32(0x7fc00000), top);
    return _mm256_mul_ps(_mm256_castsi256_ps(fixed), _mm256_set1_ps(0.5f));
  }

 private:
  const uint8_t* panel_;
};

inline __m256 widenLow(__m128i signedBytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(signedBytes)); }
inline __m256 widenHigh(__m128i signedBytes) { return widenLow(_mm_srli_si128(signedBytes, 8)); }

}  // namespace ds4::avx2
