// Panels to tiles on AVX2. Runs once per 128 activation rows, so it counts little beside the products.
#include "cpu/isa/kernel_set.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "cpu/isa/avx2_unpack.h"
#include "cpu/tile_impl.h"

namespace ds4 {

namespace {

using namespace avx2;

inline void store32(void* to, __m256i value) { _mm256_store_si256(static_cast<__m256i*>(to), value); }

struct Decoders {
  static void q2k(const uint8_t* panel, IntTile& tile) {
    for (int half = 0; half < 2; half++) {
      const __m256 d = loadHalves(panel + 16 * half), dmin = loadHalves(panel + 32 + 16 * half);
      // Index within a 128-bit lane: 4 x (row of the lane) + field.
      const __m256i base =
          _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
      for (int j = 0; j < 16; j++) {
        const Q2KScales scales(panel, j, half);
        const __m256i fields = load32(panel + q2k_panel::kQuants + 64 * j + 32 * half), table = scales.multiples();
        uint8_t(*target)[kGroupBytes] = tile.storage + 4 * j;
        const auto put = [&](int g, __m256i quants) {
          store32(target[g] + 32 * half, _mm256_shuffle_epi8(table, _mm256_or_si256(base, quants)));
        };
        put(0, q2kQuants<0>(fields)), put(1, q2kQuants<1>(fields));
        put(2, q2kQuants<2>(fields)), put(3, q2kQuants<3>(fields));
        _mm256_store_ps(tile.mins[j] + 8 * half, _mm256_mul_ps(dmin, scales.min()));
      }
      for (int sub = 0; sub < 8; sub++) _mm256_store_ps(tile.scales[sub] + 8 * half, d);
    }
  }

  static void q4k(const uint8_t* panel, IntTile& tile) {
    for (int half = 0; half < 2; half++) {
      const __m256 d = loadHalves(panel + 16 * half), dmin = loadHalves(panel + 32 + 16 * half);
      Q4KScales scales(panel, half);
      for (int sub = 0; sub < 8; sub++) {
        __m256 scale, min;
        scales.next(scale, min);
        _mm256_store_ps(tile.scales[sub] + 8 * half, _mm256_mul_ps(d, scale));
        _mm256_store_ps(tile.mins[sub] + 8 * half, _mm256_mul_ps(dmin, min));
        for (int pair = 0; pair < 4; pair++) {
          const __m256i both = load32(panel + q4k_panel::kQuants + 256 * sub + kGroupBytes * pair + 32 * half);
          uint8_t(*target)[kGroupBytes] = tile.storage + 8 * sub + 2 * pair;
          store32(target[0] + 32 * half, _mm256_and_si256(both, bytes(15)));
          store32(target[1] + 32 * half, _mm256_and_si256(_mm256_srli_epi16(both, 4), bytes(15)));
        }
      }
    }
  }

  static void iq2xxs(const uint8_t* panel, IntTile& tile) {
    for (int half = 0; half < 2; half++) {
      const __m256 d = _mm256_mul_ps(loadHalves(panel + 16 * half), _mm256_set1_ps(0.125f));
      for (int sub = 0; sub < 8; sub++) {
        const Iq2xxsSub part(panel, sub, half);
        _mm256_store_ps(tile.scales[sub] + 8 * half, _mm256_mul_ps(d, part.odd));
        for (int entry = 0; entry < 4; entry++) {
          __m256 rows[2];
          for (int pair = 0; pair < 2; pair++) {
            const __m256i minus = part.negative(entry, pair);
            // 43 + v, or 43 - v = (v xor -1) + 44
            const __m256i flipped = _mm256_xor_si256(part.magnitudes(entry, pair), minus);
            rows[pair] = _mm256_castsi256_ps(_mm256_add_epi8(flipped, _mm256_sub_epi8(bytes(43), minus)));
          }
          uint8_t(*target)[kGroupBytes] = tile.storage + 8 * sub + 2 * entry;
          store32(target[0] + 32 * half, _mm256_castps_si256(_mm256_shuffle_ps(rows[0], rows[1], 0x88)));
          store32(target[1] + 32 * half, _mm256_castps_si256(_mm256_shuffle_ps(rows[0], rows[1], 0xdd)));
        }
      }
    }
  }

  static void mxfp4(const uint8_t* panel, float (*weights)[kPanelRows]) {
    const Mxfp4Sub sub(panel);
    const __m256 scale[2] = {sub.halfScale(0), sub.halfScale(1)};
    for (int i = 0; i < 16; i++) {
      __m128i codes[2];
      sub.codes(i, codes[0], codes[1]);
      for (int top = 0; top < 2; top++) {
        float* target = weights[16 * top + i];
        _mm256_store_ps(target, _mm256_mul_ps(widenLow(codes[top]), scale[0]));
        _mm256_store_ps(target + 8, _mm256_mul_ps(widenHigh(codes[top]), scale[1]));
      }
    }
  }

  static void halves(const uint8_t* from, float* to) {
    for (int half = 0; half < 2; half++) _mm256_store_ps(to + 8 * half, loadHalves(from + 16 * half));
  }
  static void bfloats(const uint8_t* from, float* to) {
    for (int half = 0; half < 2; half++) _mm256_store_ps(to + 8 * half, loadBfloats(from + 16 * half));
  }
};

}  // namespace

void avx2DecodeInt(TensorType type, const uint8_t* panel, int64_t colBegin, int count, IntTile& tile) {
  decodeIntTile<Decoders>(type, panel, colBegin, count, tile);
}

void avx2DecodeFloat(TensorType type, const uint8_t* panel, int64_t colBegin, int count, FloatTile& tile) {
  if (!decodeFloatTile<Decoders>(type, panel, colBegin, count, tile)) decodePanel(type, panel, colBegin, count, tile);
}

}  // namespace ds4

#endif
