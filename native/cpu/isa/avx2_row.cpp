// Decode on AVX2: one activation row against a panel, weights unpacked in registers and used at once.
//
// u8 x i8 pairs are summed in 16 bits as long as they fit (Q4_K: 32 columns; Q2_K: 16 unscaled ones; IQ2_XXS: 16
// magnitudes with the sign moved to the activations). Q8_0's products do not fit: its even and odd bytes are
// multiplied as 16-bit numbers.
//
// Bytes moved: the packed weights only, once. One thread, weights from memory, on an AMD EPYC (Zen 5, 2 cores, shared with
// other programs; plain read 25 to 38 GB/s), GB/s and share of the plain read of the same run: F32 41 (108 %), F16 34
// (89 %), BF16 37 (98 %), Q8_0 26 (68 %), Q4_K 29 (77 %), Q2_K 17 (45 %), MXFP4 6.4 (17 %), IQ2_XXS 4.4 (12 %). The last
// two are bound by instructions, not by memory. Repeat with: npm run bench:kernels
#include "cpu/isa/kernel_set.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "cpu/isa/avx2_unpack.h"

namespace ds4 {

namespace {

using namespace avx2;

// As far ahead as on AVX-512: about one page.
constexpr int kPrefetchBytes = 4096;

inline void prefetch(const uint8_t* from, int count) {
  for (int i = 0; i < count; i += 64) _mm_prefetch(reinterpret_cast<const char*>(from + kPrefetchBytes + i), _MM_HINT_T0);
}

inline __m256i widen(__m256i sums16) { return _mm256_madd_epi16(sums16, _mm256_set1_epi16(1)); }

inline __m256 addScaled(__m256 sum, __m256i dot, __m256 scale, float xScale) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_mul_ps(scale, _mm256_set1_ps(xScale)), sum);
}

void rowQ80(const uint8_t* panel, int64_t cols, const IntRow& row, __m256 (&out)[2]) {
  __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int64_t sub = 0; sub < cols / kSubCols; sub++) {
    const uint8_t* from = panel + sub * q80_panel::kBytes;
    prefetch(from, q80_panel::kBytes);
    const __m256i x = load32(row.quants + kSubCols * sub);
    alignas(32) int32_t even[8], odd[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(even), _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8));
    _mm256_store_si256(reinterpret_cast<__m256i*>(odd), _mm256_srai_epi16(x, 8));
    const __m256i start = _mm256_set1_epi32(row.offsets[sub]), zero = _mm256_setzero_si256();
    __m256i acc[2][2] = {{start, zero}, {start, zero}};
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
      for (int half = 0; half < 2; half++) {
        const __m256i w = load32(from + q80_panel::kQuants + kGroupBytes * g + 32 * half);
        const __m256i evens = _mm256_and_si256(w, _mm256_set1_epi16(255)), odds = _mm256_srli_epi16(w, 8);
        acc[half][0] = _mm256_add_epi32(acc[half][0], _mm256_madd_epi16(evens, _mm256_set1_epi32(even[g])));
        acc[half][1] = _mm256_add_epi32(acc[half][1], _mm256_madd_epi16(odds, _mm256_set1_epi32(odd[g])));
      }
    }
    for (int half = 0; half < 2; half++) {
      const __m256i dot = _mm256_add_epi32(acc[half][0], acc[half][1]);
      sums[half] = addScaled(sums[half], dot, loadHalves(from + 16 * half), row.scales[sub]);
    }
  }
  out[0] = sums[0], out[1] = sums[1];
}

void rowQ4K(const uint8_t* panel, int64_t cols, const IntRow& row, __m256 (&out)[2]) {
  out[0] = out[1] = _mm256_setzero_ps();
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * q4k_panel::kBytes;
    prefetch(from, q4k_panel::kBytes);
    Q4KScales scales[2] = {{from, 0}, {from, 1}};
    const __m256 d[2] = {loadHalves(from), loadHalves(from + 16)};
    const __m256 dmin[2] = {loadHalves(from + 32), loadHalves(from + 48)};
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      const uint8_t* quants = from + q4k_panel::kQuants + 256 * s;
      __m256i acc[2][2];
#pragma GCC unroll 4
      for (int pair = 0; pair < 4; pair++) {
        const __m256i x0 = broadcast4(row.quants + kSubCols * at + 8 * pair);
        const __m256i x1 = broadcast4(row.quants + kSubCols * at + 8 * pair + 4);
        for (int half = 0; half < 2; half++) {
          const __m256i w = load32(quants + kGroupBytes * pair + 32 * half);
          const __m256i low = _mm256_maddubs_epi16(_mm256_and_si256(w, bytes(15)), x0);
          const __m256i high = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(w, 4), bytes(15)), x1);
          acc[half][0] = pair == 0 ? low : _mm256_add_epi16(acc[half][0], low);
          acc[half][1] = pair == 0 ? high : _mm256_add_epi16(acc[half][1], high);
        }
      }
      for (int half = 0; half < 2; half++) {
        __m256 scale, min;
        scales[half].next(scale, min);
        const __m256i dot = widen(_mm256_add_epi16(acc[half][0], acc[half][1]));
        out[half] = addScaled(out[half], dot, _mm256_mul_ps(d[half], scale), row.scales[at]);
        out[half] = _mm256_fnmadd_ps(_mm256_mul_ps(dmin[half], min), _mm256_set1_ps(row.sums32[at]), out[half]);
      }
    }
  }
}

void rowQ2K(const uint8_t* panel, int64_t cols, const IntRow& row, __m256 (&out)[2]) {
  out[0] = out[1] = _mm256_setzero_ps();
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * q2k_panel::kBytes;
    prefetch(from, q2k_panel::kBytes);
    const __m256 d[2] = {loadHalves(from), loadHalves(from + 16)};
    const __m256 dmin[2] = {loadHalves(from + 32), loadHalves(from + 48)};
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      __m256i dot[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
      __m256 mins[2][2];
#pragma GCC unroll 2
      for (int h = 0; h < 2; h++) {
        const int8_t* x = row.quants + kSubCols * at + 16 * h;
        const __m256i x0 = broadcast4(x), x1 = broadcast4(x + 4), x2 = broadcast4(x + 8), x3 = broadcast4(x + 12);
        for (int half = 0; half < 2; half++) {
          const __m256i fields = load32(from + q2k_panel::kQuants + 64 * (2 * s + h) + 32 * half);
          const __m256i first = _mm256_add_epi16(_mm256_maddubs_epi16(q2kQuants<0>(fields), x0),
                                                 _mm256_maddubs_epi16(q2kQuants<1>(fields), x1));
          const __m256i last = _mm256_add_epi16(_mm256_maddubs_epi16(q2kQuants<2>(fields), x2),
                                                _mm256_maddubs_epi16(q2kQuants<3>(fields), x3));
          const Q2KScales scales(from, 2 * s + h, half);
          dot[half] = _mm256_add_epi32(dot[half], _mm256_madd_epi16(_mm256_add_epi16(first, last), scales.scale16()));
          mins[half][h] = _mm256_mul_ps(dmin[half], scales.min());
        }
      }
      for (int half = 0; half < 2; half++) {
        out[half] = addScaled(out[half], dot[half], d[half], row.scales[at]);
        for (int h = 0; h < 2; h++) {
          out[half] = _mm256_fnmadd_ps(mins[half][h], _mm256_set1_ps(row.sums16[2 * at + h]), out[half]);
        }
      }
    }
  }
}

// 8 rows x 32 columns. Two entries' pairs of magnitudes (2 x 2 x 43 x 127) fit 16 bits.
inline __m256i dotIq2xxs(const Iq2xxsSub& part, const int8_t* x) {
  __m256i sums[2];
#pragma GCC unroll 2
  for (int pair = 0; pair < 2; pair++) {
    __m256i products[4];
#pragma GCC unroll 4
    for (int entry = 0; entry < 4; entry++) {
      long long eight;
      std::memcpy(&eight, x + 8 * entry, 8);
      const __m256i sign = _mm256_or_si256(part.negative(entry, pair), bytes(1));
      products[entry] =
          _mm256_maddubs_epi16(part.magnitudes(entry, pair), _mm256_sign_epi8(_mm256_set1_epi64x(eight), sign));
    }
    sums[pair] = _mm256_add_epi32(widen(_mm256_add_epi16(products[0], products[1])),
                                  widen(_mm256_add_epi16(products[2], products[3])));
  }
  return _mm256_hadd_epi32(sums[0], sums[1]);  // rows 0, 1, 2, 3 | 4, 5, 6, 7
}

void rowIq2xxs(const uint8_t* panel, int64_t cols, const IntRow& row, __m256 (&out)[2]) {
  out[0] = out[1] = _mm256_setzero_ps();
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * iq2xxs_panel::kBytes;
    prefetch(from, iq2xxs_panel::kBytes);
    const __m256 d[2] = {_mm256_mul_ps(loadHalves(from), _mm256_set1_ps(0.125f)),
                         _mm256_mul_ps(loadHalves(from + 16), _mm256_set1_ps(0.125f))};
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      for (int half = 0; half < 2; half++) {
        const Iq2xxsSub part(from, s, half);
        const __m256i dot = dotIq2xxs(part, row.quants + kSubCols * at);
        out[half] = addScaled(out[half], dot, _mm256_mul_ps(d[half], part.odd), row.scales[at]);
      }
    }
  }
}

void rowMxfp4(const uint8_t* panel, int64_t cols, const float* x, __m256 (&out)[2]) {
  constexpr int64_t kSubs = kBlockCols / kSubCols;
  __m256 sums[2][2] = {};  // of even and of odd columns
  for (int64_t sub = 0; sub < cols / kSubCols; sub++) {
    const Mxfp4Sub weights(panel + sub * mxfp4_panel::kBytes);
    prefetch(panel + sub * mxfp4_panel::kBytes, mxfp4_panel::kBytes);
    const __m256 scale[2] = {weights.halfScale(0), weights.halfScale(1)};
    const float* from = x + kSubCols * sub;
    const auto add = [&](__m128i codes, int col) {
      const __m256 value = _mm256_broadcast_ss(from + col);
      sums[col % 2][0] = _mm256_fmadd_ps(_mm256_mul_ps(widenLow(codes), scale[0]), value, sums[col % 2][0]);
      sums[col % 2][1] = _mm256_fmadd_ps(_mm256_mul_ps(widenHigh(codes), scale[1]), value, sums[col % 2][1]);
    };
    __m128i high[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
      __m128i low;
      weights.codes(i, low, high[i]);
      add(low, i);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) add(high[i], 16 + i);
    if (sub % kSubs < kSubs - 1) continue;
    for (int half = 0; half < 2; half++) {
      sums[0][half] = _mm256_add_ps(sums[0][half], sums[1][half]);
      sums[1][half] = _mm256_setzero_ps();
    }
  }
  for (int half = 0; half < 2; half++) out[half] = _mm256_add_ps(sums[0][half], sums[1][half]);
}

template <int Bytes, class Load>
inline void rowPlain(const uint8_t* panel, int64_t cols, const float* x, Load load, __m256 (&out)[2]) {
  __m256 sums[2][2] = {};  // of even and of odd columns
  const auto add = [&](int64_t at, int p) {
    const uint8_t* from = panel + at * 16 * Bytes;
    const __m256 value = _mm256_broadcast_ss(x + at);
    sums[p][0] = _mm256_fmadd_ps(load(from), value, sums[p][0]);
    sums[p][1] = _mm256_fmadd_ps(load(from + 8 * Bytes), value, sums[p][1]);
  };
  for (int64_t col = 0; col < cols;) {
    const int64_t end = cols - col < kBlockCols ? cols : col + kBlockCols;
    for (; col + 4 <= end; col += 4) {
      prefetch(panel + col * 16 * Bytes, 64 * Bytes);
#pragma GCC unroll 4
      for (int p = 0; p < 4; p++) add(col + p, p % 2);
    }
    for (; col < end; col++) add(col, col % 2);
    for (int half = 0; half < 2; half++) {
      sums[0][half] = _mm256_add_ps(sums[0][half], sums[1][half]);
      sums[1][half] = _mm256_setzero_ps();
    }
  }
  out[0] = sums[0][0], out[1] = sums[0][1];
}

}  // namespace

bool avx2PanelTimesRows(TensorType type, const uint8_t* panel, int64_t cols, const IntRow* rows, const float* const* xs,
                        int count, float (*outs)[kPanelRows]) {
  if (count != 1) return false;
  const IntRow& row = *rows;
  const float* x = *xs;
  float* out = *outs;
  // Lambdas and not function names: a pointer to a function would be called for every register.
  const auto floats = [](const uint8_t* from) { return _mm256_loadu_ps(reinterpret_cast<const float*>(from)); };
  const auto halves = [](const uint8_t* from) { return loadHalves(from); };
  const auto bfloats = [](const uint8_t* from) { return loadBfloats(from); };
  __m256 sums[2];
  switch (type) {
    case TensorType::Q8_0: rowQ80(panel, cols, row, sums); break;
    case TensorType::Q2_K: rowQ2K(panel, cols, row, sums); break;
    case TensorType::Q4_K: rowQ4K(panel, cols, row, sums); break;
    case TensorType::IQ2_XXS: rowIq2xxs(panel, cols, row, sums); break;
    case TensorType::MXFP4: rowMxfp4(panel, cols, x, sums); break;
    case TensorType::F32: rowPlain<4>(panel, cols, x, floats, sums); break;
    case TensorType::F16: rowPlain<2>(panel, cols, x, halves, sums); break;
    case TensorType::BF16: rowPlain<2>(panel, cols, x, bfloats, sums); break;
    default: return false;
  }
  _mm256_store_ps(out, sums[0]);
  _mm256_store_ps(out + 8, sums[1]);
  return true;
}

}  // namespace ds4

#endif
