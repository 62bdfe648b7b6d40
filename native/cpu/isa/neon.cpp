// NEON inner loops for batches (Armv8.2 dot product): a tile of 256 columns x 16 rows against four activation rows, 16
// sums in registers. Checked under emulation only; speed on a real processor has not been measured.
#include "cpu/isa/kernel_set.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include "cpu/isa/neon_unpack.h"

namespace ds4 {

namespace {

using namespace neon;

// Full: the weights use all 8 bits (Q8_0) and are made signed here. All others fit signed bytes as they are.
// Mins: minima per 32 columns.
template <int Rows, bool Full, int Mins>
inline void dotIntRows(const IntTile& tile, int subs, int64_t sub32, const IntRow* rows, float (*out)[kPanelRows]) {
  for (int sub = 0; sub < subs; sub++) {
    const int64_t at = sub32 + sub;
    int32x4_t acc[Rows][4];
    DS4_UNROLL
    for (int r = 0; r < Rows; r++) {
      const int32_t start = !Full && rows[r].offsets ? rows[r].offsets[at] : 0;
      DS4_UNROLL
      for (int q = 0; q < 4; q++) acc[r][q] = vdupq_n_s32(start);
    }
    DS4_UNROLL
    for (int part = 0; part < 2; part++) {
      int8x16_t x[Rows];
      DS4_UNROLL
      for (int r = 0; r < Rows; r++) x[r] = vld1q_s8(rows[r].quants + kSubCols * at + 16 * part);
      forLanes([&](auto lane) {
        const uint8_t* group = tile.quants[sub] + kGroupBytes * (4 * part + lane);
        DS4_UNROLL
        for (int q = 0; q < 4; q++) {
          const uint8x16_t bytes = vld1q_u8(group + 16 * q);
          const int8x16_t w = vreinterpretq_s8_u8(Full ? veorq_u8(bytes, vdupq_n_u8(0x80)) : bytes);
          DS4_UNROLL
          for (int r = 0; r < Rows; r++) acc[r][q] = vdotq_laneq_s32(acc[r][q], w, x[r], decltype(lane)::value);
        }
      });
    }
    DS4_UNROLL
    for (int q = 0; q < 4; q++) {
      const float32x4_t scale = vld1q_f32(tile.scales[sub] + 4 * q);
      DS4_UNROLL
      for (int r = 0; r < Rows; r++) {
        float* target = out[r] + 4 * q;
        const float32x4_t both = vmulq_n_f32(scale, rows[r].scales[at]);
        float32x4_t sum = vfmaq_f32(vld1q_f32(target), vcvtq_f32_s32(acc[r][q]), both);
        DS4_UNROLL
        for (int m = 0; m < Mins; m++) {
          const float x = Mins == 2 ? rows[r].sums16[2 * at + m] : rows[r].sums32[at];
          sum = vfmsq_n_f32(sum, vld1q_f32(tile.mins[Mins * sub + m] + 4 * q), x);
        }
        vst1q_f32(target, sum);
      }
    }
  }
}

template <bool Full, int Mins>
void dotIntAll(const IntTile& tile, int subs, int64_t sub32, const IntRow* rows, int count, float (*out)[kPanelRows]) {
  forRuns<4, 2, 1>(count, [&](auto n, int r) {
    dotIntRows<n, Full, Mins>(tile, subs, sub32, rows + r, out + r);
  });
}

void dotInt(const IntTile& tile, int subs, int64_t sub32, const IntRow* rows, int count, float (*out)[kPanelRows]) {
  if (tile.offset == 128) dotIntAll<true, 0>(tile, subs, sub32, rows, count, out);
  else if (tile.minCount == 16) dotIntAll<false, 2>(tile, subs, sub32, rows, count, out);
  else if (tile.minCount == 8) dotIntAll<false, 1>(tile, subs, sub32, rows, count, out);
  else dotIntAll<false, 0>(tile, subs, sub32, rows, count, out);
}

template <int Rows>
inline void dotFloatRows(const FloatTile& tile, int cols, const float* const* rows, float (*out)[kPanelRows]) {
  float32x4_t sums[Rows][4];
  DS4_UNROLL
  for (int r = 0; r < Rows; r++) {
    DS4_UNROLL
    for (int q = 0; q < 4; q++) sums[r][q] = vld1q_f32(out[r] + 4 * q);
  }
  int col = 0;
  for (; col + 4 <= cols; col += 4) {
    float32x4_t x[Rows];
    DS4_UNROLL
    for (int r = 0; r < Rows; r++) x[r] = vld1q_f32(rows[r] + col);
    forLanes([&](auto lane) {
      DS4_UNROLL
      for (int q = 0; q < 4; q++) {
        const float32x4_t w = vld1q_f32(tile.weights[col + lane] + 4 * q);
        DS4_UNROLL
        for (int r = 0; r < Rows; r++) sums[r][q] = vfmaq_laneq_f32(sums[r][q], w, x[r], decltype(lane)::value);
      }
    });
  }
  for (; col < cols; col++) {
    DS4_UNROLL
    for (int q = 0; q < 4; q++) {
      const float32x4_t w = vld1q_f32(tile.weights[col] + 4 * q);
      DS4_UNROLL
      for (int r = 0; r < Rows; r++) sums[r][q] = vfmaq_n_f32(sums[r][q], w, rows[r][col]);
    }
  }
  DS4_UNROLL
  for (int r = 0; r < Rows; r++) {
    DS4_UNROLL
    for (int q = 0; q < 4; q++) vst1q_f32(out[r] + 4 * q, sums[r][q]);
  }
}

void dotFloat(const FloatTile& tile, int cols, const float* const* rows, int count, float (*out)[kPanelRows]) {
  forRuns<4, 2, 1>(count, [&](auto n, int r) {
    dotFloatRows<n>(tile, cols, rows + r, out + r);
  });
}

}  // namespace

void neonDecodeInt(TensorType type, const uint8_t* panel, int64_t colBegin, int count, IntTile& tile);
void neonDecodeFloat(TensorType type, const uint8_t* panel, int64_t colBegin, int count, FloatTile& tile);
bool neonPanelTimesRows(TensorType type, const uint8_t* panel, int64_t cols, const IntRow* rows, const float* const* xs,
                        int count, float (*outs)[kPanelRows]);

const KernelSet* neonKernels() {
  static const KernelSet set = {"neon", dotInt, dotFloat, neonDecodeInt, neonDecodeFloat, neonPanelTimesRows};
  return &set;
}

}  // namespace ds4

#else

namespace ds4 {
const KernelSet* neonKernels() { return nullptr; }
}  // namespace ds4

#endif
