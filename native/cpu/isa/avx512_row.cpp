// Decode on AVX-512: one activation row against a panel, weights unpacked in registers and used at once.
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

// Two chains per 32 columns: their additions overlap.
template <class Sub>
inline __m512i dotSub(const Sub& part, const int8_t* x, __m512i start) {
  __m512i even = start, odd = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int g = 0; g < 8; g += 2) {
    even = _mm512_dpbusd_epi32(even, part.group(g), broadcast4(x + 4 * g));
    odd = _mm512_dpbusd_epi32(odd, part.group(g + 1), broadcast4(x + 4 * g + 4));
  }
  return _mm512_add_epi32(even, odd);
}

inline __m512 addScaled(__m512 sum, __m512i dot, __m512 scale, float xScale) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(scale, _mm512_set1_ps(xScale)), sum);
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

__m512 rowQ80(const uint8_t* panel, int64_t cols, const IntRow& row) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t sub = 0; sub < cols / kSubCols; sub++) {
    const uint8_t* from = panel + sub * q80_panel::kBytes;
    prefetch(from, q80_panel::kBytes);
    const Q80Sub part{from + q80_panel::kQuants};
    const __m512i dot = dotSub(part, row.quants + kSubCols * sub, _mm512_set1_epi32(row.offsets[sub]));
    sum = addScaled(sum, dot, loadHalves(from), row.scales[sub]);
  }
  return sum;
}

__m512 rowIq2xxs(const uint8_t* panel, int64_t cols, const IntRow& row) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * iq2xxs_panel::kBytes;
    const Iq2xxsPanel weights(from);
    prefetch(from, iq2xxs_panel::kBytes);
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      const Iq2xxsPanel::Sub part = weights.sub(s);
      const __m512i dot = dotSub(part, row.quants + kSubCols * at, _mm512_set1_epi32(row.offsets[at]));
      sum = addScaled(sum, dot, part.scale, row.scales[at]);
    }
  }
  return sum;
}

__m512 rowQ2K(const uint8_t* panel, int64_t cols, const IntRow& row) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * q2k_panel::kBytes;
    const Q2KPanel weights(from);
    prefetch(from, q2k_panel::kBytes);
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      const int8_t* x = row.quants + kSubCols * at;
      __m512i dot[2];
      __m512 min[2];
      for (int h = 0; h < 2; h++) {
        const Q2KPanel::Sub part = weights.sub(2 * s + h);
        dot[h] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) dot[h] = _mm512_dpbusd_epi32(dot[h], part.group(g), broadcast4(x + 16 * h + 4 * g));
        min[h] = part.min;
      }
      sum = addScaled(sum, _mm512_add_epi32(dot[0], dot[1]), weights.d, row.scales[at]);
      for (int h = 0; h < 2; h++) sum = _mm512_fnmadd_ps(min[h], _mm512_set1_ps(row.sums16[2 * at + h]), sum);
    }
  }
  return sum;
}

__m512 rowQ4K(const uint8_t* panel, int64_t cols, const IntRow& row) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t block = 0; block < cols / kBlockCols; block++) {
    const uint8_t* from = panel + block * q4k_panel::kBytes;
    const Q4KPanel weights(from);
    prefetch(from, q4k_panel::kBytes);
    for (int s = 0; s < 8; s++) {
      const int64_t at = 8 * block + s;
      const Q4KPanel::Sub part = weights.sub(s);
      const __m512i dot = dotSub(part, row.quants + kSubCols * at, _mm512_setzero_si512());
      sum = addScaled(sum, dot, part.scale, row.scales[at]);
      sum = _mm512_fnmadd_ps(part.min, _mm512_set1_ps(row.sums32[at]), sum);
    }
  }
  return sum;
}

// Even and odd columns apart, joined at the end of each block.
template <class Load>
inline __m512 rowPlain(int64_t cols, const float* x, Load load) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t col = 0; col < cols;) {
    const int64_t end = cols - col < kBlockCols ? cols : col + kBlockCols;
    __m512 odd = _mm512_setzero_ps();
    for (; col + 2 <= end; col += 2) {
      sum = _mm512_fmadd_ps(load(col), _mm512_set1_ps(x[col]), sum);
      odd = _mm512_fmadd_ps(load(col + 1), _mm512_set1_ps(x[col + 1]), odd);
    }
    if (col < end) sum = _mm512_fmadd_ps(load(col), _mm512_set1_ps(x[col]), sum), col++;
    sum = _mm512_add_ps(sum, odd);
  }
  return sum;
}

__m512 rowMxfp4(const uint8_t* panel, int64_t cols, const float* x) {
  constexpr int64_t kSubs = kBlockCols / kSubCols;
  __m512 sum = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
  for (int64_t sub = 0; sub < cols / kSubCols; sub++) {
    const Mxfp4Panel weights(panel + sub * mxfp4_panel::kBytes);
    const float* from = x + kSubCols * sub;
    for (int i = 0; i < 16; i += 2) {
      sum = _mm512_fmadd_ps(weights.low(i), _mm512_set1_ps(from[i]), sum);
      odd = _mm512_fmadd_ps(weights.low(i + 1), _mm512_set1_ps(from[i + 1]), odd);
    }
    for (int i = 0; i < 16; i += 2) {
      sum = _mm512_fmadd_ps(weights.high(i), _mm512_set1_ps(from[16 + i]), sum);
      odd = _mm512_fmadd_ps(weights.high(i + 1), _mm512_set1_ps(from[17 + i]), odd);
    }
    if (sub % kSubs == kSubs - 1) sum = _mm512_add_ps(sum, odd), odd = _mm512_setzero_ps();
  }
  return _mm512_add_ps(sum, odd);
}

}  // namespace

bool avx512PanelTimesRow(TensorType type, const uint8_t* panel, int64_t cols, const IntRow& row, const float* x,
                         float* out) {
  __m512 sum;
  switch (type) {
    case TensorType::Q8_0: sum = rowQ80(panel, cols, row); break;
    case TensorType::IQ2_XXS: sum = rowIq2xxs(panel, cols, row); break;
    case TensorType::Q2_K: sum = rowQ2K(panel, cols, row); break;
    case TensorType::Q4_K: sum = rowQ4K(panel, cols, row); break;
    case TensorType::F32: sum = rowPlain(cols, x, [=](int64_t c) { return _mm512_loadu_ps(panel + c * 64); }); break;
    case TensorType::F16: sum = rowPlain(cols, x, [=](int64_t c) { return loadHalves(panel + c * 32); }); break;
    case TensorType::BF16: sum = rowPlain(cols, x, [=](int64_t c) { return loadBfloats(panel + c * 32); }); break;
    case TensorType::MXFP4: sum = rowMxfp4(panel, cols, x); break;
    default: return false;
  }
  _mm512_store_ps(out, sum);
  return true;
}

}  // namespace ds4

#endif
