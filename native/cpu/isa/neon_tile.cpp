// Panels to tiles on NEON. Runs once per 128 activation rows, so it counts little beside the products.
#include "cpu/isa/kernel_set.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include "cpu/isa/neon_unpack.h"
#include "cpu/tile_impl.h"

namespace ds4 {

namespace {

using namespace neon;

inline void storeScaled(float* to, const Floats& values, const Floats& factor) {
  for (int q = 0; q < 4; q++) vst1q_f32(to + 4 * q, vmulq_f32(values.q[q], factor.q[q]));
}

struct Decoders {
  static void q2k(const uint8_t* panel, IntTile& tile) {
    const Floats d = loadHalves(panel), dmin = loadHalves(panel + 32);
    for (int j = 0; j < 16; j++) {
      const uint8x16_t bytes = vld2q_u8(panel + q2k_panel::kScales + 32 * (j / 2)).val[j % 2];
      const uint8x16_t scales = vandq_u8(bytes, vdupq_n_u8(15));
      for (int q = 0; q < 4; q++) {
        // A row's scale, four times.
        const uint8x16_t rows = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
        const uint8x16_t scale = vqtbl1q_u8(scales, vaddq_u8(rows, vdupq_n_u8(static_cast<uint8_t>(4 * q))));
        const uint8x16_t fields = vld1q_u8(panel + q2k_panel::kQuants + kGroupBytes * j + 16 * q);
        forLanes([&](auto group) {
          vst1q_u8(tile.storage[4 * j + group] + 16 * q, vmulq_u8(q2kQuants<decltype(group)::value>(fields), scale));
        });
      }
      storeScaled(tile.mins[j], toFloats(widen(vshrq_n_u8(bytes, 4))), dmin);
    }
    for (int sub = 0; sub < 8; sub++) store(tile.scales[sub], d);
  }

  static void q4k(const uint8_t* panel, IntTile& tile) {
    const Floats d = loadHalves(panel), dmin = loadHalves(panel + 32);
    Q4KScales scales(panel);
    for (int sub = 0; sub < 8; sub++) {
      Floats scale, min;
      scales.next(scale, min);
      storeScaled(tile.scales[sub], scale, d);
      storeScaled(tile.mins[sub], min, dmin);
    }
    for (int pair = 0; pair < 32; pair++) {
      for (int q = 0; q < 4; q++) {
        const uint8x16_t both = vld1q_u8(panel + q4k_panel::kQuants + kGroupBytes * pair + 16 * q);
        vst1q_u8(tile.storage[2 * pair] + 16 * q, vandq_u8(both, vdupq_n_u8(15)));
        vst1q_u8(tile.storage[2 * pair + 1] + 16 * q, vshrq_n_u8(both, 4));
      }
    }
  }

  static void iq2xxs(const uint8_t* panel, IntTile& tile) {
    const Floats d = loadHalves(panel);
    for (int sub = 0; sub < 8; sub++) {
      for (int q = 0; q < 4; q++) {
        const Iq2xxsSub part(panel, sub, q);
        vst1q_f32(tile.scales[sub] + 4 * q, vmulq_f32(part.odd, vmulq_n_f32(d.q[q], 0.125f)));
        for (int entry = 0; entry < 4; entry++) {
          const int8x16_t offset = vdupq_n_s8(43);
          const uint32x4_t first = vreinterpretq_u32_s8(vaddq_s8(part.values(entry, 0), offset));
          const uint32x4_t last = vreinterpretq_u32_s8(vaddq_s8(part.values(entry, 1), offset));
          uint8_t(*target)[kGroupBytes] = tile.storage + 8 * sub + 2 * entry;
          vst1q_u8(target[0] + 16 * q, vreinterpretq_u8_u32(vuzp1q_u32(first, last)));
          vst1q_u8(target[1] + 16 * q, vreinterpretq_u8_u32(vuzp2q_u32(first, last)));
        }
      }
    }
  }

  static void mxfp4(const uint8_t* panel, float (*weights)[kPanelRows]) {
    const Floats scale = mxfp4HalfScales(panel);
    for (int i = 0; i < 16; i++) {
      Floats low, high;
      mxfp4Codes(panel, i, low, high);
      storeScaled(weights[i], low, scale);
      storeScaled(weights[16 + i], high, scale);
    }
  }

  static void halves(const uint8_t* from, float* to) { store(to, loadHalves(from)); }
  static void bfloats(const uint8_t* from, float* to) { store(to, loadBfloats(from)); }
};

}  // namespace

void neonDecodeInt(TensorType type, const uint8_t* panel, int64_t colBegin, int count, IntTile& tile) {
  decodeIntTile<Decoders>(type, panel, colBegin, count, tile);
}

void neonDecodeFloat(TensorType type, const uint8_t* panel, int64_t colBegin, int count, FloatTile& tile) {
  if (!decodeFloatTile<Decoders>(type, panel, colBegin, count, tile)) decodePanel(type, panel, colBegin, count, tile);
}

}  // namespace ds4

#endif
