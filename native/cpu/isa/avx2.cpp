// AVX2 inner loops for batches: a tile of 256 columns x 16 rows against up to six activation rows in registers.
//
// dotInt: u8 x i8 pairs summed in 16 bits for as many groups of 4 columns as the type's largest weight allows (Q4_K 8,
// Q2_K 2, IQ2_XXS 1), then widened. Q8_0's weights use all 8 bits: its even and odd bytes are multiplied as 16-bit
// numbers.
//
// 256 activation rows x 4096 columns, one thread of an AMD EPYC (Zen 5, shared with other programs), billions of
// multiply-adds per second and share of the peak (float32 measured, int8 four times that): F32 45 (55 %), BF16 47 (55 %),
// MXFP4 30 (34 %), Q8_0 42 (13 %), Q4_K 73 (21 %), IQ2_XXS 73 (22 %), Q2_K 60 (17 %).
#include "cpu/isa/kernel_set.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "cpu/isa/avx2_unpack.h"

namespace ds4 {

namespace {

using namespace avx2;

inline void store32(void* to, __m256i value) { _mm256_store_si256(static_cast<__m256i*>(to), value); }

// out[r] += acc[r] * weight scale * activation scale - its minima. Mins: minima per 32 columns.
template <int Rows, int Mins>
__attribute__((always_inline)) inline void addSub(const IntTile& tile, int sub, const IntRow* rows, int64_t at,
                                                  const __m256i (&acc)[Rows][2], float (*out)[kPanelRows]) {
  DS4_UNROLL
  for (int half = 0; half < 2; half++) {
    const __m256 scale = _mm256_load_ps(tile.scales[sub] + 8 * half);
    DS4_UNROLL
    for (int r = 0; r < Rows; r++) {
      float* target = out[r] + 8 * half;
      const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(rows[r].scales[at]));
      __m256 sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][half]), both, _mm256_load_ps(target));
      DS4_UNROLL
      for (int m = 0; m < Mins; m++) {
        const float x = Mins == 2 ? rows[r].sums16[2 * at + m] : rows[r].sums32[at];
        sum = _mm256_fnmadd_ps(_mm256_load_ps(tile.mins[Mins * sub + m] + 8 * half), _mm256_set1_ps(x), sum);
      }
      _mm256_store_ps(target, sum);
    }
  }
}

// 32 columns whose pairs fit 16 bits over `Groups` groups. Of these types only IQ2_XXS (1 group) has an offset.
template <int Rows, int Groups>
__attribute__((always_inline)) inline void dotSub(const uint8_t* w, const IntRow* rows, int64_t at, __m256i (&acc)[Rows][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
  DS4_UNROLL
  for (int r = 0; r < Rows; r++) {
    acc[r][0] = acc[r][1] = Groups == 1 ? _mm256_set1_epi32(rows[r].offsets[at]) : _mm256_setzero_si256();
  }
  for (int first = 0; first < 8; first += Groups) {
    __m256i sums[Rows][2];
#pragma GCC unroll 8
    for (int g = 0; g < Groups; g++) {
      const __m256i low = load32(w + kGroupBytes * (first + g)), high = load32(w + kGroupBytes * (first + g) + 32);
      DS4_UNROLL
      for (int r = 0; r < Rows; r++) {
        const __m256i x = broadcast4(rows[r].quants + kSubCols * at + 4 * (first + g));
        const __m256i a = _mm256_maddubs_epi16(low, x), b = _mm256_maddubs_epi16(high, x);
        sums[r][0] = g == 0 ? a : _mm256_add_epi16(sums[r][0], a);
        sums[r][1] = g == 0 ? b : _mm256_add_epi16(sums[r][1], b);
      }
    }
    DS4_UNROLL
    for (int r = 0; r < Rows; r++) {
      DS4_UNROLL
      for (int half = 0; half < 2; half++) {
        const __m256i wide = _mm256_madd_epi16(sums[r][half], ones);
        acc[r][half] = Groups == 8 ? wide : _mm256_add_epi32(acc[r][half], wide);
      }
    }
  }
}

// 32 columns of full bytes, as 16-bit numbers.
template <int Rows>
__attribute__((always_inline)) inline void dotSubWide(const uint8_t* w, const IntRow* rows, int64_t at, __m256i (&acc)[Rows][2]) {
  alignas(32) int32_t x[Rows][2][8];
  DS4_UNROLL
  for (int r = 0; r < Rows; r++) {
    const __m256i quants = load32(rows[r].quants + kSubCols * at);
    store32(x[r][0], _mm256_srai_epi16(_mm256_slli_epi16(quants, 8), 8));
    store32(x[r][1], _mm256_srai_epi16(quants, 8));
    acc[r][0] = acc[r][1] = _mm256_set1_epi32(rows[r].offsets[at]);
  }
  for (int g = 0; g < 8; g++) {
    DS4_UNROLL
    for (int odd = 0; odd < 2; odd++) {
      __m256i weights[2];
      DS4_UNROLL
      for (int half = 0; half < 2; half++) {
        const __m256i both = load32(w + kGroupBytes * g + 32 * half);
        weights[half] = odd ? _mm256_srli_epi16(both, 8) : _mm256_and_si256(both, _mm256_set1_epi16(255));
      }
      DS4_UNROLL
      for (int r = 0; r < Rows; r++) {
        const __m256i value = _mm256_set1_epi32(x[r][odd][g]);
        DS4_UNROLL
        for (int half = 0; half < 2; half++) {
          acc[r][half] = _mm256_add_epi32(acc[r][half], _mm256_madd_epi16(weights[half], value));
        }
      }
    }
  }
}

// Groups 0: full bytes.
template <int Rows, int Groups>
inline void dotIntRows(const IntTile& tile, int subs, int64_t sub32, const IntRow* rows, float (*out)[kPanelRows]) {
  for (int sub = 0; sub < subs; sub++) {
    __m256i acc[Rows][2];
    if constexpr (Groups == 0) dotSubWide<Rows>(tile.quants[sub], rows, sub32 + sub, acc);
    else dotSub<Rows, Groups>(tile.quants[sub], rows, sub32 + sub, acc);
    // Of the types with minima Q2_K sums 2 groups, Q4_K 8.
    constexpr int kMins = Groups == 2 ? 2 : Groups == 8 ? 1 : 0;
    addSub<Rows, kMins>(tile, sub, rows, sub32 + sub, acc, out);
  }
}

template <int Most, int Groups>
void dotIntAll(const IntTile& tile, int subs, int64_t sub32, const IntRow* rows, int count, float (*out)[kPanelRows]) {
  forRuns<Most, 2, 1>(count, [&](auto n, int r) {
    dotIntRows<n, Groups>(tile, subs, sub32, rows + r, out + r);
  });
}

void dotInt(const IntTile& tile, int subs, int64_t sub32, const IntRow* rows, int count, float (*out)[kPanelRows]) {
  if (tile.offset == 128) dotIntAll<4, 0>(tile, subs, sub32, rows, count, out);
  else if (tile.offset == 43) dotIntAll<4, 1>(tile, subs, sub32, rows, count, out);
  else if (tile.minCount == 16) dotIntAll<4, 2>(tile, subs, sub32, rows, count, out);
  else dotIntAll<6, 8>(tile, subs, sub32, rows, count, out);
}

// Even and odd columns apart, joined at the tile's end: the same order for any number of rows.
template <int Rows>
inline void dotFloatRows(const FloatTile& tile, int cols, const float* const* rows, float (*out)[kPanelRows]) {
  __m256 sums[Rows][2][2];
  DS4_UNROLL
  for (int r = 0; r < Rows; r++) {
    DS4_UNROLL
    for (int half = 0; half < 2; half++) {
      sums[r][0][half] = _mm256_load_ps(out[r] + 8 * half);
      sums[r][1][half] = _mm256_setzero_ps();
    }
  }
  const auto add = [&](int col, int p) __attribute__((always_inline)) {
    const __m256 low = _mm256_load_ps(tile.weights[col]), high = _mm256_load_ps(tile.weights[col] + 8);
    DS4_UNROLL
    for (int r = 0; r < Rows; r++) {
      const __m256 x = _mm256_broadcast_ss(rows[r] + col);
      sums[r][p][0] = _mm256_fmadd_ps(low, x, sums[r][p][0]);
      sums[r][p][1] = _mm256_fmadd_ps(high, x, sums[r][p][1]);
    }
  };
  int col = 0;
  for (; col + 2 <= cols; col += 2) add(col, 0), add(col + 1, 1);
  if (col < cols) add(col, 0);
  DS4_UNROLL
  for (int r = 0; r < Rows; r++) {
    DS4_UNROLL
    for (int half = 0; half < 2; half++) {
      _mm256_store_ps(out[r] + 8 * half, _mm256_add_ps(sums[r][0][half], sums[r][1][half]));
    }
  }
}

void dotFloat(const FloatTile& tile, int cols, const float* const* rows, int count, float (*out)[kPanelRows]) {
  forRuns<3, 1>(count, [&](auto n, int r) {
    dotFloatRows<n>(tile, cols, rows + r, out + r);
  });
}

}  // namespace

void avx2DecodeInt(TensorType type, const uint8_t* panel, int64_t colBegin, int count, IntTile& tile);
void avx2DecodeFloat(TensorType type, const uint8_t* panel, int64_t colBegin, int count, FloatTile& tile);
bool avx2PanelTimesRows(TensorType type, const uint8_t* panel, int64_t cols, const IntRow* rows, const float* const* xs,
                        int count, float (*outs)[kPanelRows]);

const KernelSet* avx2Kernels() {
  static const KernelSet set = {"avx2", dotInt, dotFloat, avx2DecodeInt, avx2DecodeFloat, avx2PanelTimesRows};
  return &set;
}

}  // namespace ds4

#else

namespace ds4 {
const KernelSet* avx2Kernels() { return nullptr; }
}  // namespace ds4

#endif
