// Unpacks panel blocks in NEON registers: a register holds a quarter of a panel (4 rows) or of a group (4 rows x 4
// columns). Include only from files compiled for the dot-product extension.
#pragma once
#include <arm_neon.h>

#include <type_traits>

#include "common/lattice-grids.h"
#include "cpu/packed_layout.h"

namespace ds4::neon {

/// A value per row of a panel.
struct Floats {
  float32x4_t q[4];
};
struct Ints {
  int32x4_t q[4];
};

inline Floats zeros() { return {{vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}}; }
inline Ints zeroInts() { return {{vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)}}; }

/// Runs body(0), body(1), body(2), body(3), each with its number as a constant: lane indices must be constants.
template <class Body>
inline void forLanes(Body body) {
  body(std::integral_constant<int, 0>{});
  body(std::integral_constant<int, 1>{});
  body(std::integral_constant<int, 2>{});
  body(std::integral_constant<int, 3>{});
}

inline Ints widen(uint8x16_t bytes) {
  const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_u8(vget_high_u8(bytes));
  return {{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(low))),
           vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))), vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(high)))}};
}

inline Ints widen(int8x16_t bytes) {
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vmovl_s16(vget_low_s16(low)), vmovl_s16(vget_high_s16(low)), vmovl_s16(vget_low_s16(high)),
           vmovl_s16(vget_high_s16(high))}};
}

inline Floats toFloats(const Ints& values) {
  return {{vcvtq_f32_s32(values.q[0]), vcvtq_f32_s32(values.q[1]), vcvtq_f32_s32(values.q[2]), vcvtq_f32_s32(values.q[3])}};
}

inline Floats loadHalves(const uint8_t* from) {
  const float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(from)), high = vreinterpretq_f16_u8(vld1q_u8(from + 16));
  return {{vcvt_f32_f16(vget_low_f16(low)), vcvt_f32_f16(vget_high_f16(low)), vcvt_f32_f16(vget_low_f16(high)),
           vcvt_f32_f16(vget_high_f16(high))}};
}

inline Floats loadBfloats(const uint8_t* from) {
  const uint16x8_t low = vreinterpretq_u16_u8(vld1q_u8(from)), high = vreinterpretq_u16_u8(vld1q_u8(from + 16));
  const auto value = [](uint16x4_t bits) { return vreinterpretq_f32_u32(vshll_n_u16(bits, 16)); };
  return {{value(vget_low_u16(low)), value(vget_high_u16(low)), value(vget_low_u16(high)), value(vget_high_u16(high))}};
}

inline Floats loadFloats(const uint8_t* from) {
  Floats values;
  for (int q = 0; q < 4; q++) values.q[q] = vreinterpretq_f32_u8(vld1q_u8(from + 16 * q));
  return values;
}

inline void store(float* to, const Floats& values) {
  for (int q = 0; q < 4; q++) vst1q_f32(to + 4 * q, values.q[q]);
}

/// Scales and mins of a Q4_K block as whole numbers, for sub-blocks 0, 1, 2, … in turn.
class Q4KScales {
 public:
  explicit Q4KScales(const uint8_t* panel) : low_(panel + q4k_panel::kLow) {
    for (int q = 0; q < 4; q++) high_[q] = vreinterpretq_u32_u8(vld1q_u8(panel + q4k_panel::kHigh + 16 * q));
  }

  /// Moves on to the next sub-block.
  void next(Floats& scale, Floats& min) {
    const uint8x16_t low = vld1q_u8(low_);
    Ints scales = widen(vandq_u8(low, vdupq_n_u8(15))), mins = widen(vshrq_n_u8(low, 4));
    const uint32x4_t top = vdupq_n_u32(0x30);
    for (int q = 0; q < 4; q++) {
      scales.q[q] = vorrq_s32(scales.q[q], vreinterpretq_s32_u32(vandq_u32(vshlq_n_u32(high_[q], 4), top)));
      mins.q[q] = vorrq_s32(mins.q[q], vreinterpretq_s32_u32(vandq_u32(vshrq_n_u32(high_[q], 12), top)));
      high_[q] = vshrq_n_u32(high_[q], 2);
    }
    scale = toFloats(scales);
    min = toFloats(mins);
    low_ += 16;
  }

 private:
  const uint8_t* low_;
  uint32x4_t high_[4];
};

/// Columns 4 * Group .. + 3 of 16 columns of Q2_K, from their 2-bit fields.
template <int Group>
inline uint8x16_t q2kQuants(uint8x16_t fields) {
  if constexpr (Group == 0) return vandq_u8(fields, vdupq_n_u8(3));
  else if constexpr (Group == 3) return vshrq_n_u8(fields, 6);
  else return vandq_u8(vshrq_n_u8(fields, 2 * Group), vdupq_n_u8(3));
}

/// 32 columns of IQ2_XXS for a quarter panel. An entry is 8 columns; a register takes those of two rows from the grid.
class Iq2xxsSub {
 public:
  Iq2xxsSub(const uint8_t* panel, int sub, int quarter) {
    entries_ = panel + iq2xxs_panel::kSubs + iq2xxs_panel::kSubBytes * sub + 16 * quarter;
    const uint32x4_t words = vreinterpretq_u32_u8(vld1q_u8(entries_ + 64));
    odd = vcvtq_f32_u32(vorrq_u32(vshrq_n_u32(words, 27), vdupq_n_u32(1)));
    // Four fields of seven bits, a byte each; bit 7 becomes their parity.
    const uint32x4_t seven = vorrq_u32(
        vorrq_u32(vandq_u32(words, vdupq_n_u32(0x7f)), vandq_u32(vshlq_n_u32(words, 1), vdupq_n_u32(0x7f00))),
        vorrq_u32(vandq_u32(vshlq_n_u32(words, 2), vdupq_n_u32(0x7f0000)),
                  vandq_u32(vshlq_n_u32(words, 3), vdupq_n_u32(0x7f000000))));
    const uint8x16_t bytes = vreinterpretq_u8_u32(seven);
    signs_ = vorrq_u8(bytes, vshlq_n_u8(vcntq_u8(bytes), 7));
  }

  /// The entry's 8 values for rows 2 * pair and 2 * pair + 1 of the quarter.
  int8x16_t values(int entry, int pair) const {
    const uint8_t* index = entries_ + 8 * pair + entry;
    const uint8x16_t magnitude = vcombine_u8(vcreate_u8(kIq2XxsGrid[index[0]]), vcreate_u8(kIq2XxsGrid[index[4]]));
    const uint8x16_t rows = vcombine_u8(vdup_n_u8(0), vdup_n_u8(4));
    const uint8x16_t spread = vqtbl1q_u8(signs_, vaddq_u8(rows, vdupq_n_u8(static_cast<uint8_t>(8 * pair + entry))));
    const uint8x16_t minus = vtstq_u8(spread, vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201)));
    return vreinterpretq_s8_u8(vsubq_u8(veorq_u8(magnitude, minus), minus));
  }

  float32x4_t odd;  // 2 * scale + 1

 private:
  const uint8_t* entries_;
  uint8x16_t signs_;
};

/// Twice the values of columns i and 16 + i of an MXFP4 block, 16 rows as whole numbers.
inline void mxfp4Codes(const uint8_t* panel, int i, Floats& low, Floats& high) {
  const int8x16_t table = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint8x16_t pair = vld1q_u8(panel + mxfp4_panel::kCodes + 16 * i);
  low = toFloats(widen(vqtbl1q_s8(table, vandq_u8(pair, vdupq_n_u8(15)))));
  high = toFloats(widen(vqtbl1q_s8(table, vshrq_n_u8(pair, 4))));
}

/// 2^(e - 128) per row; NaN for e = 255.
inline Floats mxfp4HalfScales(const uint8_t* panel) {
  const Ints exponents = widen(vld1q_u8(panel));
  Floats scales;
  for (int q = 0; q < 4; q++) {
    const uint32x4_t e = vreinterpretq_u32_s32(exponents.q[q]);
    // 2^(e - 127) is the exponent field itself, but for the subnormal 2^-127 and for NaN.
    const uint32x4_t normal = vbslq_u32(vceqzq_u32(e), vdupq_n_u32(0x00400000), vshlq_n_u32(e, 23));
    const uint32x4_t bits = vbslq_u32(vceqq_u32(e, vdupq_n_u32(255)), vdupq_n_u32(0x7fc00000), normal);
    scales.q[q] = vmulq_n_f32(vreinterpretq_f32_u32(bits), 0.5f);
  }
  return scales;
}

}  // namespace ds4::neon
