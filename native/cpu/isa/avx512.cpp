// AVX-512 inner loops (VNNI, VBMI, GFNI: Ice Lake, Sapphire Rapids, Zen 4 and later).
//
// dotInt: per 32 columns and activation row 8 x vpdpbusd (64 multiply-adds each, a lane per weight row), then one
// conversion and one fused multiply-add with weight scale x activation scale. No horizontal sums anywhere.
//
// 256 activation rows x 4096 columns, one thread of an AMD EPYC (Zen 5, shared with other programs), billions of
// multiply-adds per second and share of the peak (float32 measured, int8 four times that): F32 68 (39 %), F16 66 (44 %),
// BF16 68 (40 %), MXFP4 75 (43 %), Q8_0 195 (28 %), Q4_K 175 (26 %), Q2_K 158 (23 %), IQ2_XXS 186 (27 %).
#include "cpu/isa/kernel_set.h"

#if defined(__AVX512VNNI__) && defined(__AVX512VBMI__) && defined(__GFNI__)
#include <immintrin.h>

#include <cstring>

#include "cpu/isa/avx512_unpack.h"
#include "cpu/tile_impl.h"

namespace ds4 {

namespace {

inline __m512i broadcast4(const int8_t* bytes) {
  int32_t word;
  std::memcpy(&word, bytes, 4);
  return _mm512_set1_epi32(word);
}

// Mins: minima per 32 columns.
template <int Rows, bool HasOffset, int Mins>
inline void dotIntRows(const IntTile& tile, int subs, int64_t sub32, const IntRow* rows, float (*out)[kPanelRows]) {
  __m512 sums[Rows];
  DS4_UNROLL
  for (int r = 0; r < Rows; r++) sums[r] = _mm512_load_ps(out[r]);
  for (int sub = 0; sub < subs; sub++) {
    const int64_t at = sub32 + sub;
    __m512i acc[Rows];
    DS4_UNROLL
    for (int r = 0; r < Rows; r++) acc[r] = HasOffset ? _mm512_set1_epi32(rows[r].offsets[at]) : _mm512_setzero_si512();
    const uint8_t* w = tile.quants[sub];
#pragma GCC unroll 8
    for (int group = 0; group < 8; group++) {
      const __m512i weights = _mm512_loadu_si512(w + kGroupBytes * group);
      DS4_UNROLL
      for (int r = 0; r < Rows; r++) {
        acc[r] = _mm512_dpbusd_epi32(acc[r], weights, broadcast4(rows[r].quants + kSubCols * at + 4 * group));
      }
    }
    const __m512 scale = _mm512_load_ps(tile.scales[sub]);
    DS4_UNROLL
    for (int r = 0; r < Rows; r++) {
      const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(rows[r].scales[at]));
      sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r]), both, sums[r]);
    }
    DS4_UNROLL
    for (int m = 0; m < Mins; m++) {
      const __m512 min = _mm512_load_ps(tile.mins[Mins * sub + m]);
      DS4_UNROLL
      for (int r = 0; r < Rows; r++) {
        const float sum = Mins == 2 ? rows[r].sums16[2 * at + m] : rows[r].sums32[at];
        sums[r] = _mm512_fnmadd_ps(min, _mm512_set1_ps(sum), sums[r]);
      }
    }
  }
  DS4_UNROLL
  for (int r = 0; r < Rows; r++) _mm512_store_ps(out[r], sums[r]);
}

template <bool HasOffset, int Mins>
void dotIntAll(const IntTile& tile, int subs, int64_t sub32, const IntRow* rows, int count, float (*out)[kPanelRows]) {
  forRuns<8, 4, 2, 1>(count, [&](auto n, int r) {
    dotIntRows<n, HasOffset, Mins>(tile, subs, sub32, rows + r, out + r);
  });
}

void dotInt(const IntTile& tile, int subs, int64_t sub32, const IntRow* rows, int count, float (*out)[kPanelRows]) {
  if (tile.offset != 0) dotIntAll<true, 0>(tile, subs, sub32, rows, count, out);
  else if (tile.minCount == 16) dotIntAll<false, 2>(tile, subs, sub32, rows, count, out);
  else dotIntAll<false, 1>(tile, subs, sub32, rows, count, out);
}

// Even and odd columns apart, joined at the tile's end: the same order for any number of rows.
template <int Rows>
inline void dotFloatRows(const FloatTile& tile, int cols, const float* const* rows, float (*out)[kPanelRows]) {
  constexpr int kParts = 2;
  __m512 sums[Rows][kParts];
  DS4_UNROLL
  for (int r = 0; r < Rows; r++) {
    DS4_UNROLL
    for (int p = 0; p < kParts; p++) sums[r][p] = p == 0 ? _mm512_load_ps(out[r]) : _mm512_setzero_ps();
  }
  int col = 0;
  for (; col + kParts <= cols; col += kParts) {
    DS4_UNROLL
    for (int p = 0; p < kParts; p++) {
      const __m512 weights = _mm512_load_ps(tile.weights[col + p]);
      DS4_UNROLL
      for (int r = 0; r < Rows; r++) {
        sums[r][p] = _mm512_fmadd_ps(weights, _mm512_set1_ps(rows[r][col + p]), sums[r][p]);
      }
    }
  }
  for (; col < cols; col++) {
    DS4_UNROLL
    for (int r = 0; r < Rows; r++) {
      sums[r][0] = _mm512_fmadd_ps(_mm512_load_ps(tile.weights[col]), _mm512_set1_ps(rows[r][col]), sums[r][0]);
    }
  }
  DS4_UNROLL
  for (int r = 0; r < Rows; r++) {
    DS4_UNROLL
    for (int p = 1; p < kParts; p++) sums[r][0] = _mm512_add_ps(sums[r][0], sums[r][p]);
    _mm512_store_ps(out[r], sums[r][0]);
  }
}

void dotFloat(const FloatTile& tile, int cols, const float* const* rows, int count, float (*out)[kPanelRows]) {
  forRuns<12, 4, 2, 1>(count, [&](auto n, int r) {
    dotFloatRows<n>(tile, cols, rows + r, out + r);
  });
}

struct Decoders {
  static void q2k(const uint8_t* block, IntTile& tile) {
    const avx512::Q2KPanel weights(block);
    for (int j = 0; j < 16; j++) {
      const avx512::Q2KPanel::Sub part = weights.sub(j);
      for (int group = 0; group < 4; group++) _mm512_store_si512(tile.storage[4 * j + group], part.group(group));
      _mm512_store_ps(tile.mins[j], part.min);
    }
    for (int sub = 0; sub < 8; sub++) _mm512_store_ps(tile.scales[sub], weights.d);
  }

  static void q4k(const uint8_t* block, IntTile& tile) {
    const avx512::Q4KPanel weights(block);
    for (int sub = 0; sub < 8; sub++) {
      const avx512::Q4KPanel::Sub part = weights.sub(sub);
      for (int group = 0; group < 8; group++) _mm512_store_si512(tile.storage[8 * sub + group], part.group(group));
      _mm512_store_ps(tile.scales[sub], part.scale);
      _mm512_store_ps(tile.mins[sub], part.min);
    }
  }

  static void iq2xxs(const uint8_t* block, IntTile& tile) {
    const avx512::Iq2xxsPanel weights(block);
    for (int sub = 0; sub < 8; sub++) {
      const avx512::Iq2xxsPanel::Sub part = weights.sub(sub);
      for (int group = 0; group < 8; group++) _mm512_store_si512(tile.storage[8 * sub + group], part.group(group));
      _mm512_store_ps(tile.scales[sub], part.scale);
    }
  }

  static void mxfp4(const uint8_t* block, float (*weights)[kPanelRows]) {
    const avx512::Mxfp4Panel panel(block);
    for (int i = 0; i < 16; i++) {
      _mm512_store_ps(weights[i], panel.low(i));
      _mm512_store_ps(weights[16 + i], panel.high(i));
    }
  }

  static void halves(const uint8_t* from, float* to) { _mm512_store_ps(to, avx512::loadHalves(from)); }
  static void bfloats(const uint8_t* from, float* to) { _mm512_store_ps(to, avx512::loadBfloats(from)); }
};

void decodeInt(TensorType type, const uint8_t* panel, int64_t colBegin, int count, IntTile& tile) {
  decodeIntTile<Decoders>(type, panel, colBegin, count, tile);
}

void decodeFloat(TensorType type, const uint8_t* panel, int64_t colBegin, int count, FloatTile& tile) {
  if (!decodeFloatTile<Decoders>(type, panel, colBegin, count, tile)) decodePanel(type, panel, colBegin, count, tile);
}

}  // namespace

bool avx512PanelTimesRows(TensorType type, const uint8_t* panel, int64_t cols, const IntRow* rows,
                          const float* const* x, int count, float (*out)[kPanelRows]);
bool avx512PairTimesRows(TensorType type, const uint8_t* panel, size_t panelBytes, int64_t cols, const IntRow* rows,
                         int count, float (*out)[kPanelRows]);

const KernelSet* avx512Kernels() {
  static const KernelSet set = {"avx512",    dotInt,      dotFloat, decodeInt,
                                decodeFloat, avx512PanelTimesRows, avx512PairTimesRows};
  return &set;
}

}  // namespace ds4

#else

namespace ds4 {
const KernelSet* avx512Kernels() { return nullptr; }
}  // namespace ds4

#endif
