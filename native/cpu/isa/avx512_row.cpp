// Decode on AVX-512: one to eight activation rows against a panel, weights unpacked in registers and used at once by all.
//
// Bytes moved per panel block are the packed weights only; instructions per 64 weights: Q8_0 2, Q4_K 3.5, Q2_K 4.5,
// IQ2_XXS 7. One thread, weights from memory, on an AMD EPYC (Zen 5, 2 cores, shared with other programs; plain read
// 31 GB/s), GB/s and share of the plain read: F32 37 (121 %), F16 30 (99 %), BF16 27 (87 %), Q8_0 35 (113 %), Q4_K 36
// (118 %), Q2_K 29 (95 %), IQ2_XXS 21 (70 %), MXFP4 14 (45 %). The plain read does not prefetch, hence shares above 100 %.
// Repeat with: npm run bench:kernels
#include "cpu/isa/kernel_set.h"

#if defined(__AVX512VNNI__) && defined(__AVX512VBMI__) && defined(__GFNI__)
#include <immintrin.h>

#include <cstring>

#include "cpu/isa/avx512_unpack.h"

namespace ds4 {

namespace {

using namespace avx512;

inline __m512i broadcast4(const int8_t* bytes) {
  int32_t word;
  std::memcpy(&word, bytes, 4);
  return _mm512_set1_epi32(word);
}

// 4 x (End - Begin) columns of N rows, the columns' bytes unpacked once. Few rows get two chains: their additions overlap.
template <int N, int Begin, int End, class Sub>
inline void dotGroups(const Sub& part, const int8_t* const (&x)[N], __m512i (&dot)[N]) {
  constexpr bool kTwo = N <= 2;
  __m512i odd[N];
  DS4_UNROLL
  for (int r = 0; r < N; r++) odd[r] = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int g = Begin; g < End; g++) {
    const __m512i weights = part.group(g - Begin);
    DS4_UNROLL
    for (int r = 0; r < N; r++) {
      __m512i& sum = kTwo && g % 2 == 1 ? odd[r] : dot[r];
      sum = _mm512_dpbusd_epi32(sum, weights, broadcast4(x[r] + 4 * g));
    }
  }
  DS4_UNROLL
  for (int r = 0; r < N && kTwo; r++) dot[r] = _mm512_add_epi32(dot[r], odd[r]);
}

inline __m512 addScaled(__m512 sum, __m512i dot, __m512 scale, float xScale) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(scale, _mm512_set1_ps(xScale)), sum);
}

// The rows' 32 columns from `at` on, with the sums that undo the weights' offset.
template <int N, bool HasOffset>
inline void startRows(const IntRow* rows, int64_t at, const int8_t* (&x)[N], __m512i (&dot)[N]) {
  DS4_UNROLL
  for (int r = 0; r < N; r++) {
    x[r] = rows[r].quants + kSubCols * at;
    dot[r] = HasOffset ? _mm512_set1_epi32(rows[r].offsets[at]) : _mm512_setzero_si512();
  }
}

struct Q80Sub {
  const uint8_t* quants;
  __m512i group(int g) const { return _mm512_loadu_si512(quants + kGroupBytes * g); }
};

// How far ahead decode asks for weights: about one page of panels, beyond what the hardware prefetcher keeps in flight.
constexpr int kPrefetchBytes = 4096;

inline void prefetch(const uint8_t* from, int bytes) {
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(from + kPrefetchBytes + i), _MM_HINT_T0);
}

template <int N>
void rowsQ80(const uint8_t* panel, int64_t cols, const IntRow* rows, __m512 (&sums)[N]) {
  for (int64_t at = 0; at < cols / kSubCols; at++) {
    const uint8_t* from = panel + at * q80_panel::kBytes;
    prefetch(from, q80_panel::kBytes);
    const int8_t* x[N];
    __m512i dot[N];
    startRows<N, true>(rows, at, x, dot);
    dotGroups<N, 0, 8>(Q80Sub{from + q80_panel::kQuants}, x, dot);
    const __m512 scale = loadHalves(from);
    DS4_UNROLL
    for (int r = 0; r < N; r++) sums[r] = addScaled(sums[r], dot[r], scale, rows[r].scales[at]);
  }
}

// Two panels of Q8_0 at a time: what is fetched of the rows, four bytes in all lanes, serves both. That fetch and not the
// product is what several rows wait for. Sums of panel p and row r are out[p * stride + r].
template <int N>
inline void pairQ80(const uint8_t* panel, size_t panelBytes, int64_t begin, int64_t end, const IntRow* rows,
                    float (*out)[kPanelRows], int stride) {
  __m512 sums[2][N];
  DS4_UNROLL
  for (int r = 0; r < N; r++) {
    sums[0][r] = _mm512_loadu_ps(out[r]);
    sums[1][r] = _mm512_loadu_ps(out[stride + r]);
  }
  for (int64_t at = begin; at < end; at++) {
    const uint8_t* first = panel + at * q80_panel::kBytes;
    const uint8_t* second = first + panelBytes;
    prefetch(first, q80_panel::kBytes);
    prefetch(second, q80_panel::kBytes);
    const int8_t* x[N];
    __m512i dots[2][N];
    startRows<N, true>(rows, at, x, dots[0]);
    DS4_UNROLL
    for (int r = 0; r < N; r++) dots[1][r] = dots[0][r];
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
      const __m512i a = Q80Sub{first + q80_panel::kQuants}.group(g), b = Q80Sub{second + q80_panel::kQuants}.group(g);
      DS4_UNROLL
      for (int r = 0; r < N; r++) {
        const __m512i value = broadcast4(x[r] + 4 * g);
        dots[0][r] = _mm512_dpbusd_epi32(dots[0][r], a, value);
        dots[1][r] = _mm512_dpbusd_epi32(dots[1][r], b, value);
      }
    }
    const __m512 scales[2] = {loadHalves(first), loadHalves(second)};
    DS4_UNROLL
    for (int r = 0; r < N; r++) {
      sums[0][r] = addScaled(sums[0][r], dots[0][r], scales[0], rows[r].scales[at]);
      sums[1][r] = addScaled(sums[1][r], dots[1][r], scales[1], rows[r].scales[at]);
    }
  }
  DS4_UNROLL
  for (int r = 0; r < N; r++) {
    _mm512_storeu_ps(out[r], sums[0][r]);
    _mm512_storeu_ps(out[stride + r], sums[1][r]);
  }
}

// More than four rows do not fit the registers: the rest reads the same weights again from the first-level cache.
template <int N>
void pairRowsQ80(const uint8_t* panel, size_t panelBytes, int64_t cols, const IntRow* rows, float (*out)[kPanelRows]) {
  constexpr int64_t kSubs = 16;
  const int64_t subs = cols / kSubCols;
  for (int64_t begin = 0; begin < subs; begin += kSubs) {
    const int64_t end = begin + kSubs < subs ? begin + kSubs : subs;
    if constexpr (N <= 4) {
      pairQ80<N>(panel, panelBytes, begin, end, rows, out, N);
    } else {
      pairQ80<4>(panel, panelBytes, begin, end, rows, out, N);
      pairQ80<N - 4>(panel, panelBytes, begin, end, rows + 4, out + 4, N);
    }
  }
}

template <int N>
void rowsIq2xxs(const uint8_t* panel, int64_t cols, const IntRow* rows, __m512 (&sums)[N]) {
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * iq2xxs_panel::kBytes;
    const Iq2xxsPanel weights(from);
    prefetch(from, iq2xxs_panel::kBytes);
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      const Iq2xxsPanel::Sub part = weights.sub(s);
      const int8_t* x[N];
      __m512i dot[N];
      startRows<N, true>(rows, at, x, dot);
      dotGroups<N, 0, 8>(part, x, dot);
      DS4_UNROLL
      for (int r = 0; r < N; r++) sums[r] = addScaled(sums[r], dot[r], part.scale, rows[r].scales[at]);
    }
  }
}

template <int N>
void rowsQ2K(const uint8_t* panel, int64_t cols, const IntRow* rows, __m512 (&sums)[N]) {
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * q2k_panel::kBytes;
    const Q2KPanel weights(from);
    prefetch(from, q2k_panel::kBytes);
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      const int8_t* x[N];
      __m512i dot[N];
      startRows<N, false>(rows, at, x, dot);
      const Q2KPanel::Sub low = weights.sub(2 * s), high = weights.sub(2 * s + 1);
      dotGroups<N, 0, 4>(low, x, dot);
      dotGroups<N, 4, 8>(high, x, dot);
      DS4_UNROLL
      for (int r = 0; r < N; r++) {
        sums[r] = addScaled(sums[r], dot[r], weights.d, rows[r].scales[at]);
        sums[r] = _mm512_fnmadd_ps(low.min, _mm512_set1_ps(rows[r].sums16[2 * at]), sums[r]);
        sums[r] = _mm512_fnmadd_ps(high.min, _mm512_set1_ps(rows[r].sums16[2 * at + 1]), sums[r]);
      }
    }
  }
}

template <int N>
void rowsQ4K(const uint8_t* panel, int64_t cols, const IntRow* rows, __m512 (&sums)[N]) {
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * q4k_panel::kBytes;
    const Q4KPanel weights(from);
    prefetch(from, q4k_panel::kBytes);
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      const Q4KPanel::Sub part = weights.sub(s);
      const int8_t* x[N];
      __m512i dot[N];
      startRows<N, false>(rows, at, x, dot);
      dotGroups<N, 0, 8>(part, x, dot);
      DS4_UNROLL
      for (int r = 0; r < N; r++) {
        sums[r] = addScaled(sums[r], dot[r], part.scale, rows[r].scales[at]);
        sums[r] = _mm512_fnmadd_ps(part.min, _mm512_set1_ps(rows[r].sums32[at]), sums[r]);
      }
    }
  }
}

// Even and odd columns apart, joined at the end of each block.
template <int N, class Load>
inline void rowsPlain(int64_t cols, const float* const* x, Load load, __m512 (&sums)[N]) {
  for (int64_t col = 0; col < cols;) {
    const int64_t end = cols - col < kBlockCols ? cols : col + kBlockCols;
    __m512 odd[N];
    DS4_UNROLL
    for (int r = 0; r < N; r++) odd[r] = _mm512_setzero_ps();
    const auto add = [&](int64_t at, __m512 (&to)[N]) __attribute__((always_inline)) {
      const __m512 weights = load(at);
      DS4_UNROLL
      for (int r = 0; r < N; r++) to[r] = _mm512_fmadd_ps(weights, _mm512_set1_ps(x[r][at]), to[r]);
    };
    for (; col + 2 <= end; col += 2) add(col, sums), add(col + 1, odd);
    if (col < end) add(col++, sums);
    DS4_UNROLL
    for (int r = 0; r < N; r++) sums[r] = _mm512_add_ps(sums[r], odd[r]);
  }
}

template <int N>
void rowsMxfp4(const uint8_t* panel, int64_t cols, const float* const* x, __m512 (&sums)[N]) {
  constexpr int64_t kSubs = kBlockCols / kSubCols;
  __m512 odd[N];
  DS4_UNROLL
  for (int r = 0; r < N; r++) odd[r] = _mm512_setzero_ps();
  const auto join = [&]() __attribute__((always_inline)) {
    DS4_UNROLL
    for (int r = 0; r < N; r++) sums[r] = _mm512_add_ps(sums[r], odd[r]), odd[r] = _mm512_setzero_ps();
  };
  for (int64_t sub = 0; sub < cols / kSubCols; sub++) {
    const Mxfp4Panel weights(panel + sub * mxfp4_panel::kBytes);
    const auto add = [&](__m512 values, int64_t col, __m512 (&to)[N]) __attribute__((always_inline)) {
      DS4_UNROLL
      for (int r = 0; r < N; r++) to[r] = _mm512_fmadd_ps(values, _mm512_set1_ps(x[r][kSubCols * sub + col]), to[r]);
    };
    for (int i = 0; i < 16; i += 2) add(weights.low(i), i, sums), add(weights.low(i + 1), i + 1, odd);
    for (int i = 0; i < 16; i += 2) add(weights.high(i), 16 + i, sums), add(weights.high(i + 1), 17 + i, odd);
    if (sub % kSubs == kSubs - 1) join();
  }
  join();
}

template <int N>
bool panelTimes(TensorType type, const uint8_t* panel, int64_t cols, const IntRow* rows, const float* const* x,
                float (*out)[kPanelRows]) {
  __m512 sums[N];
  DS4_UNROLL
  for (int r = 0; r < N; r++) sums[r] = _mm512_setzero_ps();
  switch (type) {
    case TensorType::Q8_0: rowsQ80<N>(panel, cols, rows, sums); break;
    case TensorType::IQ2_XXS: rowsIq2xxs<N>(panel, cols, rows, sums); break;
    case TensorType::Q2_K: rowsQ2K<N>(panel, cols, rows, sums); break;
    case TensorType::Q4_K: rowsQ4K<N>(panel, cols, rows, sums); break;
    case TensorType::F32: rowsPlain(cols, x, [=](int64_t c) { return _mm512_loadu_ps(panel + c * 64); }, sums); break;
    case TensorType::F16: rowsPlain(cols, x, [=](int64_t c) { return loadHalves(panel + c * 32); }, sums); break;
    case TensorType::BF16: rowsPlain(cols, x, [=](int64_t c) { return loadBfloats(panel + c * 32); }, sums); break;
    case TensorType::MXFP4: rowsMxfp4<N>(panel, cols, x, sums); break;
    default: return false;
  }
  DS4_UNROLL
  for (int r = 0; r < N; r++) _mm512_store_ps(out[r], sums[r]);
  return true;
}

}  // namespace

bool avx512PanelTimesRows(TensorType type, const uint8_t* panel, int64_t cols, const IntRow* rows,
                          const float* const* x, int count, float (*out)[kPanelRows]) {
  switch (count) {
    case 1: return panelTimes<1>(type, panel, cols, rows, x, out);
    case 2: return panelTimes<2>(type, panel, cols, rows, x, out);
    case 3: return panelTimes<3>(type, panel, cols, rows, x, out);
    case 4: return panelTimes<4>(type, panel, cols, rows, x, out);
    case 5: return panelTimes<5>(type, panel, cols, rows, x, out);
    case 6: return panelTimes<6>(type, panel, cols, rows, x, out);
    case 7: return panelTimes<7>(type, panel, cols, rows, x, out);
    case 8: return panelTimes<8>(type, panel, cols, rows, x, out);
    default: return false;
  }
}

bool avx512PairTimesRows(TensorType type, const uint8_t* panel, size_t panelBytes, int64_t cols, const IntRow* rows,
                         int count, float (*out)[kPanelRows]) {
  if (type != TensorType::Q8_0 || count < 2 || count > kDirectRows) return false;
  std::memset(out, 0, sizeof(*out) * 2 * count);
  switch (count) {
    case 2: pairRowsQ80<2>(panel, panelBytes, cols, rows, out); break;
    case 3: pairRowsQ80<3>(panel, panelBytes, cols, rows, out); break;
    case 4: pairRowsQ80<4>(panel, panelBytes, cols, rows, out); break;
    case 5: pairRowsQ80<5>(panel, panelBytes, cols, rows, out); break;
    case 6: pairRowsQ80<6>(panel, panelBytes, cols, rows, out); break;
    case 7: pairRowsQ80<7>(panel, panelBytes, cols, rows, out); break;
    default: pairRowsQ80<8>(panel, panelBytes, cols, rows, out); break;
  }
  return true;
}

}  // namespace ds4

#endif
