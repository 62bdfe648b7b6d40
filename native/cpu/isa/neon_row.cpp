// Decode on NEON: one activation row against a panel, weights unpacked in registers and used at once. The activations
// of four groups sit in one register, so a group costs four dot products by lane and no broadcast. Bytes moved: the packed
// weights only, once. Checked under emulation; speed on a real processor has not been measured.
#include "cpu/isa/kernel_set.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include "cpu/isa/neon_unpack.h"

namespace ds4 {

namespace {

using namespace neon;

// sum += dot * scale * xScale
inline void addScaled(Floats& sum, const Ints& dot, const Floats& scale, float xScale) {
  for (int q = 0; q < 4; q++) {
    sum.q[q] = vfmaq_f32(sum.q[q], vcvtq_f32_s32(dot.q[q]), vmulq_n_f32(scale.q[q], xScale));
  }
}

inline void add(Floats& sum, const Floats& a, float b) {
  for (int q = 0; q < 4; q++) sum.q[q] = vfmaq_n_f32(sum.q[q], a.q[q], b);
}

inline void subtract(Floats& sum, const Floats& a, float b) {
  for (int q = 0; q < 4; q++) sum.q[q] = vfmsq_n_f32(sum.q[q], a.q[q], b);
}

inline Floats product(const Floats& a, const Floats& b) {
  Floats out;
  for (int q = 0; q < 4; q++) out.q[q] = vmulq_f32(a.q[q], b.q[q]);
  return out;
}

Floats rowQ80(const uint8_t* panel, int64_t cols, const IntRow& row) {
  Floats sum = zeros();
  for (int64_t sub = 0; sub < cols / kSubCols; sub++) {
    const uint8_t* from = panel + sub * q80_panel::kBytes;
    Ints dot = zeroInts();
    for (int part = 0; part < 2; part++) {
      const int8x16_t x = vld1q_s8(row.quants + kSubCols * sub + 16 * part);
      forLanes([&](auto lane) {
        const uint8_t* group = from + q80_panel::kQuants + kGroupBytes * (4 * part + lane);
        for (int q = 0; q < 4; q++) {
          // Back to signed: no correction by the sum of the activations.
          const int8x16_t w = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(group + 16 * q), vdupq_n_u8(0x80)));
          dot.q[q] = vdotq_laneq_s32(dot.q[q], w, x, decltype(lane)::value);
        }
      });
    }
    addScaled(sum, dot, loadHalves(from), row.scales[sub]);
  }
  return sum;
}

Floats rowQ4K(const uint8_t* panel, int64_t cols, const IntRow& row) {
  Floats out = zeros();
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * q4k_panel::kBytes;
    const Floats d = loadHalves(from), dmin = loadHalves(from + 32);
    Q4KScales scales(from);
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      const int8_t* x = row.quants + kSubCols * at;
      // Activations of the even groups and of the odd ones.
      const int32x4_t first = vreinterpretq_s32_s8(vld1q_s8(x)), last = vreinterpretq_s32_s8(vld1q_s8(x + 16));
      const int8x16_t even = vreinterpretq_s8_s32(vuzp1q_s32(first, last));
      const int8x16_t odd = vreinterpretq_s8_s32(vuzp2q_s32(first, last));
      Ints dot = zeroInts();
      forLanes([&](auto lane) {
        const uint8_t* pair = from + q4k_panel::kQuants + kGroupBytes * (4 * s + lane);
        for (int q = 0; q < 4; q++) {
          const uint8x16_t both = vld1q_u8(pair + 16 * q);
          const int8x16_t low = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
          const int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
          dot.q[q] = vdotq_laneq_s32(dot.q[q], low, even, decltype(lane)::value);
          dot.q[q] = vdotq_laneq_s32(dot.q[q], high, odd, decltype(lane)::value);
        }
      });
      Floats scale, part;
      scales.next(scale, part);
      addScaled(out, dot, product(scale, d), row.scales[at]);
      subtract(out, product(part, dmin), row.sums32[at]);
    }
  }
  return out;
}

Floats rowQ2K(const uint8_t* panel, int64_t cols, const IntRow& row) {
  Floats out = zeros();
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * q2k_panel::kBytes;
    const Floats d = loadHalves(from), dmin = loadHalves(from + 32);
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      const uint8x16x2_t scales = vld2q_u8(from + q2k_panel::kScales + 32 * s);  // of both halves of the 32 columns
      Ints both = zeroInts();
      for (int h = 0; h < 2; h++) {
        const int8x16_t x = vld1q_s8(row.quants + kSubCols * at + 16 * h);
        const uint8_t* quants = from + q2k_panel::kQuants + kGroupBytes * (2 * s + h);
        const Ints scale = widen(vandq_u8(scales.val[h], vdupq_n_u8(15)));
        for (int q = 0; q < 4; q++) {
          const uint8x16_t fields = vld1q_u8(quants + 16 * q);
          int32x4_t dot = vdupq_n_s32(0);
          forLanes([&](auto lane) {
            constexpr int kLane = decltype(lane)::value;
            dot = vdotq_laneq_s32(dot, vreinterpretq_s8_u8(q2kQuants<kLane>(fields)), x, kLane);
          });
          both.q[q] = vmlaq_s32(both.q[q], dot, scale.q[q]);
        }
      }
      addScaled(out, both, d, row.scales[at]);
      for (int h = 0; h < 2; h++) {
        subtract(out, product(toFloats(widen(vshrq_n_u8(scales.val[h], 4))), dmin), row.sums16[2 * at + h]);
      }
    }
  }
  return out;
}

Floats rowIq2xxs(const uint8_t* panel, int64_t cols, const IntRow& row) {
  Floats out = zeros();
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * iq2xxs_panel::kBytes;
    const Floats d = loadHalves(from);
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      for (int q = 0; q < 4; q++) {
        const Iq2xxsSub part(from, s, q);
        int32x4_t dots[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};  // per row the entry's first and last four columns
        for (int entry = 0; entry < 4; entry++) {
          const int8x8_t eight = vld1_s8(row.quants + kSubCols * at + 8 * entry);
          const int8x16_t x = vcombine_s8(eight, eight);
          for (int pair = 0; pair < 2; pair++) dots[pair] = vdotq_s32(dots[pair], part.values(entry, pair), x);
        }
        const float32x4_t dot = vcvtq_f32_s32(vpaddq_s32(dots[0], dots[1]));
        const float32x4_t scale = vmulq_f32(part.odd, vmulq_n_f32(d.q[q], 0.125f));
        out.q[q] = vfmaq_f32(out.q[q], dot, vmulq_n_f32(scale, row.scales[at]));
      }
    }
  }
  return out;
}

Floats rowMxfp4(const uint8_t* panel, int64_t cols, const float* x) {
  Floats out = zeros();
  for (int64_t sub = 0; sub < cols / kSubCols; sub++) {
    const uint8_t* from = panel + sub * mxfp4_panel::kBytes;
    const Floats scale = mxfp4HalfScales(from);
    for (int top = 0; top < 2; top++) {
      for (int i = 0; i < 16; i++) {
        Floats codes[2];
        mxfp4Codes(from, i, codes[0], codes[1]);
        add(out, product(codes[top], scale), x[kSubCols * sub + 16 * top + i]);
      }
    }
  }
  return out;
}

template <class Load>
Floats rowPlain(const uint8_t* panel, int64_t cols, int columnBytes, const float* x, Load load) {
  Floats sum = zeros();
  for (int64_t col = 0; col < cols; col++) add(sum, load(panel + col * columnBytes), x[col]);
  return sum;
}

}  // namespace

bool neonPanelTimesRows(TensorType type, const uint8_t* panel, int64_t cols, const IntRow* rows, const float* const* xs,
                        int count, float (*outs)[kPanelRows]) {
  if (count != 1) return false;
  const IntRow& row = *rows;
  const float* x = *xs;
  float* out = *outs;
  // Lambdas and not function names: a pointer to a function would be called for every column.
  const auto floats = [](const uint8_t* from) { return loadFloats(from); };
  const auto halves = [](const uint8_t* from) { return loadHalves(from); };
  const auto bfloats = [](const uint8_t* from) { return loadBfloats(from); };
  switch (type) {
    case TensorType::Q8_0: store(out, rowQ80(panel, cols, row)); return true;
    case TensorType::Q2_K: store(out, rowQ2K(panel, cols, row)); return true;
    case TensorType::Q4_K: store(out, rowQ4K(panel, cols, row)); return true;
    case TensorType::IQ2_XXS: store(out, rowIq2xxs(panel, cols, row)); return true;
    case TensorType::MXFP4: store(out, rowMxfp4(panel, cols, x)); return true;
    case TensorType::F32: store(out, rowPlain(panel, cols, 64, x, floats)); return true;
    case TensorType::F16: store(out, rowPlain(panel, cols, 32, x, halves)); return true;
    case TensorType::BF16: store(out, rowPlain(panel, cols, 32, x, bfloats)); return true;
    default: return false;
  }
}

}  // namespace ds4

#endif
