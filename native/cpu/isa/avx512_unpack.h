// Unpacks panel blocks in registers, one 64-byte group (16 rows x 4 columns) at a time. Used by the tile decoders
// (prefill) and by the fused single-row products (decode). Include only from files compiled for AVX-512 VBMI + GFNI.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "common/lattice-grids.h"
#include "cpu/packed_layout.h"

namespace ds4::avx512 {

inline __m512 loadHalves(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

inline __m512 loadBfloats(const uint8_t* from) {
  const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

/// The low and high code bytes of the 256 grid entries, as four 64-byte table quarters each.
struct GridTables {
  alignas(64) uint8_t low[256];
  alignas(64) uint8_t high[256];
  GridTables() {
    for (int entry = 0; entry < 256; entry++) {
      uint32_t code = 0;
      for (int i = 0; i < 8; i++) {
        const uint32_t value = kIq2XxsGrid[entry] >> (8 * i) & 255;
        code |= (value == 8 ? 0u : value == 25 ? 1u : 2u) << (2 * i);
      }
      low[entry] = static_cast<uint8_t>(code & 255);
      high[entry] = static_cast<uint8_t>(code >> 8);
    }
  }
};

inline const GridTables kGridTables;

/// A 256-entry byte table lookup: two 128-entry permutes, chosen by the index's top bit.
inline __m512i lookup256(const uint8_t* table, __m512i index) {
  const __m512i lower = _mm512_permutex2var_epi8(_mm512_load_si512(table), index, _mm512_load_si512(table + 64));
  const __m512i upper = _mm512_permutex2var_epi8(_mm512_load_si512(table + 128), index, _mm512_load_si512(table + 192));
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), lower, upper);
}

/// Bit windows per output byte. A qword holds two rows of four bytes; byte i of a row takes the 8 bits from its digit
/// (or sign) on. Sign windows start two bits early, so that the sign lands on bit 2, above the digit.
struct Iq2xxsWindows {
  uint8_t digits[4][64];
  uint8_t signs[4][2][64];
};

constexpr Iq2xxsWindows makeIq2xxsWindows() {
  Iq2xxsWindows w{};
  for (int entry = 0; entry < 4; entry++) {
    for (int byte = 0; byte < 64; byte++) {
      const int row = byte % 8 / 4, i = byte % 4;
      w.digits[entry][byte] = static_cast<uint8_t>(32 * row + 8 * entry + 2 * i);
      for (int half = 0; half < 2; half++) {
        w.signs[entry][half][byte] = static_cast<uint8_t>((32 * row + 8 * entry + 4 * half + i + 62) % 64);
      }
    }
  }
  return w;
}

alignas(64) inline constexpr Iq2xxsWindows kIq2xxsWindows = makeIq2xxsWindows();

/// 256 columns of IQ2_XXS. A group costs four instructions: two bit-window extractions, one merge, one lookup.
class Iq2xxsPanel {
 public:
  explicit Iq2xxsPanel(const uint8_t* panel) : panel_(panel) {
    d_ = _mm512_mul_ps(loadHalves(panel), _mm512_set1_ps(0.125f));
  }

  struct Sub {
    __m512i low, high;  // [row][entry]: four 2-bit digits of the entry's first and last four values
    __m512i signs;      // [row][entry]: eight sign bits
    __m512 scale;

    /// Columns 4g .. 4g+3 as 43 +- grid value.
    __m512i group(int g) const {
      const int entry = g / 2, half = g % 2;
      const __m512i digitAt = _mm512_load_si512(kIq2xxsWindows.digits[entry]);
      const __m512i signAt = _mm512_load_si512(kIq2xxsWindows.signs[entry][half]);
      const __m512i digits = _mm512_multishift_epi64_epi8(digitAt, half ? high : low);
      const __m512i sign = _mm512_multishift_epi64_epi8(signAt, signs);
      const __m512i index = _mm512_ternarylogic_epi32(_mm512_set1_epi8(4), sign, digits, 0xca);  // bit 2 from sign
      return _mm512_permutexvar_epi8(index, valueTable());
    }
  };

  Sub sub(int s) const {
    const uint8_t* from = panel_ + iq2xxs_panel::kSubs + iq2xxs_panel::kSubBytes * s;
    const __m512i entries = _mm512_loadu_si512(from);
    const __m512i words = _mm512_loadu_si512(from + 64);
    Sub part;
    part.low = lookup256(kGridTables.low, entries);
    part.high = lookup256(kGridTables.high, entries);
    // Seven bits per entry; the affine transform keeps them and sets bit 7 to their parity.
    const __m512i seven = _mm512_multishift_epi64_epi8(
        _mm512_set1_epi64(0x352e2720150e0700), words);  // offsets 0,7,14,21 and 32,39,46,53
    part.signs = _mm512_gf2p8affine_epi64_epi8(seven, _mm512_set1_epi64(kParityMatrix), 0);
    const __m512 odd = _mm512_cvtepi32_ps(
        _mm512_or_si512(_mm512_slli_epi32(_mm512_srli_epi32(words, 28), 1), _mm512_set1_epi32(1)));
    part.scale = _mm512_mul_ps(d_, odd);
    return part;
  }

 private:
  // Row i of the matrix (byte 7 - i) says which input bits make output bit i: identity below, all seven for bit 7.
  static constexpr long long kParityMatrix = 0x010204081020407f;

  // Indexed by digit (bits 0-1) and sign (bit 2); the lookup's upper index bits are garbage, hence the repetition.
  static __m512i valueTable() {
    constexpr int values[8] = {43 + 8, 43 + 25, 43 + 43, 43, 43 - 8, 43 - 25, 43 - 43, 43};
    constexpr auto packed = [&] {
      unsigned long long word = 0;
      for (int i = 0; i < 8; i++) word |= static_cast<unsigned long long>(values[i]) << (8 * i);
      return word;
    }();
    return _mm512_set1_epi64(static_cast<long long>(packed));
  }

  const uint8_t* panel_;
  __m512 d_;
};

/// 256 columns of Q2_K as quant x scale (0..45): a shift, a merge and a lookup per group.
class Q2KPanel {
 public:
  explicit Q2KPanel(const uint8_t* panel) : panel_(panel) {
    d = loadHalves(panel);
    dmin_ = loadHalves(panel + 32);
  }

  struct Sub {
    __m512i fields;  // [row][4] bytes of four 2-bit fields
    __m512i table;   // [row][4]: 0, s, 2s, 3s
    __m512 min;

    __m512i group(int g) const {
      // Index within a 128-bit lane: 4 x (row of the lane) + field.
      const __m512i base = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
      const __m512i shifted = g == 0 ? fields : _mm512_srl_epi16(fields, _mm_cvtsi32_si128(2 * g));
      const __m512i index = _mm512_ternarylogic_epi32(shifted, _mm512_set1_epi8(3), base, 0xea);  // (a & b) | c
      return _mm512_shuffle_epi8(table, index);
    }
  };

  Sub sub(int j) const {
    const __m256i pair = _mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(panel_ + q2k_panel::kScales + 32 * (j / 2)));
    const __m512i words = _mm512_cvtepu8_epi16(pair);  // per row: byte of j even, byte of j odd
    const __m512i bytes = j % 2 ? _mm512_srli_epi32(words, 16) : _mm512_and_si512(words, _mm512_set1_epi32(0xff));
    Sub part;
    part.fields = _mm512_loadu_si512(panel_ + q2k_panel::kQuants + 64 * j);
    part.table = _mm512_mullo_epi32(_mm512_and_si512(bytes, _mm512_set1_epi32(15)), _mm512_set1_epi32(0x03020100));
    part.min = _mm512_mul_ps(dmin_, _mm512_cvtepi32_ps(_mm512_srli_epi32(bytes, 4)));
    return part;
  }

  __m512 d;

 private:
  const uint8_t* panel_;
  __m512 dmin_;
};

/// 256 columns of Q4_K: nibbles, scales and mins per 32 columns.
class Q4KPanel {
 public:
  explicit Q4KPanel(const uint8_t* panel) : panel_(panel) {
    d_ = loadHalves(panel);
    dmin_ = loadHalves(panel + 32);
    high_ = _mm512_loadu_si512(panel + q4k_panel::kHigh);
  }

  struct Sub {
    const uint8_t* quants;
    __m512 scale, min;

    __m512i group(int g) const {
      const __m512i bytes = _mm512_loadu_si512(quants + 64 * (g / 2));
      const __m512i nibbles = g % 2 ? _mm512_srli_epi16(bytes, 4) : bytes;
      return _mm512_and_si512(nibbles, _mm512_set1_epi8(15));
    }
  };

  Sub sub(int j) const {
    const __m512i low = _mm512_cvtepu8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(panel_ + q4k_panel::kLow + 16 * j)));
    const __m512i three = _mm512_set1_epi32(3), fifteen = _mm512_set1_epi32(15);
    const __m512i scaleTop = _mm512_and_si512(_mm512_srl_epi32(high_, _mm_cvtsi32_si128(2 * j)), three);
    const __m512i minTop = _mm512_and_si512(_mm512_srl_epi32(high_, _mm_cvtsi32_si128(16 + 2 * j)), three);
    const __m512i scale = _mm512_or_si512(_mm512_and_si512(low, fifteen), _mm512_slli_epi32(scaleTop, 4));
    const __m512i min = _mm512_or_si512(_mm512_srli_epi32(low, 4), _mm512_slli_epi32(minTop, 4));
    Sub part;
    part.quants = panel_ + q4k_panel::kQuants + 256 * j;
    part.scale = _mm512_mul_ps(d_, _mm512_cvtepi32_ps(scale));
    part.min = _mm512_mul_ps(dmin_, _mm512_cvtepi32_ps(min));
    return part;
  }

 private:
  const uint8_t* panel_;
  __m512 d_, dmin_;
  __m512i high_;
};

/// 32 columns of MXFP4 as floats (exact: the scale is a power of two).
class Mxfp4Panel {
 public:
  explicit Mxfp4Panel(const uint8_t* panel) : panel_(panel) {
    const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel)));
    // 2^(e - 127): the exponent field itself; e = 0 is the subnormal 2^-127, e = 255 is NaN.
    const __m512i normal = _mm512_slli_epi32(e, 23);
    const __m512i fixed = _mm512_mask_mov_epi32(normal, _mm512_cmpeq_epi32_mask(e, _mm512_setzero_si512()),
                                                _mm512_set1_epi32(0x00400000));
    scale_ = _mm512_castsi512_ps(_mm512_mask_mov_epi32(
        fixed, _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(255)), _mm512_set1_epi32(0x7fc00000)));
  }

  __m512 low(int i) const { return values(codes(i)); }
  __m512 high(int i) const { return values(_mm512_srli_epi32(codes(i), 4)); }

 private:
  __m512i codes(int i) const {
    return _mm512_cvtepu8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(panel_ + mxfp4_panel::kCodes + 16 * i)));
  }

  __m512 values(__m512i code) const {
    const __m512 table = _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    return _mm512_mul_ps(_mm512_permutexvar_ps(code, table), scale_);  // the permute reads the low 4 bits only
  }

  const uint8_t* panel_;
  __m512 scale_;
};

}  // namespace ds4::avx512
