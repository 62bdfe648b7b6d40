// The ops once, on values of 16 floats (wide_float.h). Included by one file per instruction set, inside namespace
// ds4::DS4_LEVEL. Numbers follow the reference to float32 rounding.
#include <cmath>
#include <cstring>

#include "cpu/isa/op_set.h"
#include "cpu/isa/quantize_impl.h"
#include "cpu/isa/wide_float.h"

namespace ds4::DS4_LEVEL {

DS4_INLINE double sumSquares(const float* x, int64_t width) {
  double total = 0;
  int64_t i = 0;
  for (; i + 256 <= width; i += 256) {
    v16 sums[4] = {};
    for (int64_t j = 0; j < 256; j += 64) {
      for (int p = 0; p < 4; p++) {
        const v16 value = load(x + i + j + 16 * p);
        sums[p] += value * value;
      }
    }
    total += sumLanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
  }
  for (; i < width; i++) total += static_cast<double>(x[i]) * x[i];
  return total;
}

static float rmsFactor(const float* x, int64_t width, float epsilon) {
  return static_cast<float>(1.0 / std::sqrt(sumSquares(x, width) / static_cast<double>(width) + epsilon));
}

static void normRow(float* x, int64_t width, const float* weight, float epsilon) {
  const float factor = rmsFactor(x, width, epsilon);
  if (weight == nullptr) {
    for (int64_t i = 0; i < width; i++) x[i] *= factor;
  } else {
    for (int64_t i = 0; i < width; i++) x[i] = x[i] * factor * weight[i];
  }
}

static float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// x = sum over k of pre[k] * streams[k], then the norm.
static void mixAndNorm(const HyperRead& w, const float* streams, const float* pre, float* x) {
  for (int64_t i = 0; i < w.hidden; i++) x[i] = pre[0] * streams[i];
  for (int k = 1; k < w.n; k++) {
    const float* stream = streams + k * w.hidden;
    for (int64_t i = 0; i < w.hidden; i++) x[i] += pre[k] * stream[i];
  }
  normRow(x, w.hidden, w.normWeight, w.normEpsilon);
}

constexpr int kMaxStreams = 8;

static void normalizeLines(float* m, int n, int lineStride, int stride, float epsilon) {
  for (int line = 0; line < n; line++) {
    float sum = epsilon;
    for (int i = 0; i < n; i++) sum += m[line * lineStride + i * stride];
    const float inverse = 1.0f / sum;
    for (int i = 0; i < n; i++) m[line * lineStride + i * stride] *= inverse;
  }
}

// Softmax over rows, columns to sum 1, then rows and columns in turn.
static void balance(float* m, int n, int iterations, float epsilon) {
  for (int row = 0; row < n; row++) {
    float max = m[row * n];
    for (int i = 1; i < n; i++) max = std::fmax(max, m[row * n + i]);
    float sum = 0;
    for (int i = 0; i < n; i++) sum += m[row * n + i] = std::exp(m[row * n + i] - max);
    for (int i = 0; i < n; i++) m[row * n + i] = m[row * n + i] / sum + epsilon;
  }
  normalizeLines(m, n, 1, n, epsilon);
  for (int iteration = 1; iteration < iterations; iteration++) {
    normalizeLines(m, n, n, 1, epsilon);
    normalizeLines(m, n, 1, n, epsilon);
  }
}

static void readStreams(const HyperRead& w, const float* streams, const float* mixes, float* x, float* post, float* comb) {
  const int n = w.n;
  const float factor = rmsFactor(streams, n * w.hidden, w.normEpsilon);
  float pre[kMaxStreams];
  for (int k = 0; k < n; k++) {
    pre[k] = sigmoid(mixes[k] * factor * w.scale[0] + w.base[k]) + w.hyperEpsilon;
    post[k] = 2.0f * sigmoid(mixes[n + k] * factor * w.scale[1] + w.base[n + k]);
  }
  for (int i = 0; i < n * n; i++) comb[i] = mixes[2 * n + i] * factor * w.scale[2] + w.base[2 * n + i];
  balance(comb, n, w.sinkhornIterations, w.hyperEpsilon);
  mixAndNorm(w, streams, pre, x);
}

static void readHead(const HyperRead& w, const float* streams, const float* mixes, float* x) {
  const float factor = rmsFactor(streams, w.n * w.hidden, w.normEpsilon);
  float pre[kMaxStreams];
  for (int k = 0; k < w.n; k++) pre[k] = sigmoid(mixes[k] * factor * w.scale[0] + w.base[k]) + w.hyperEpsilon;
  mixAndNorm(w, streams, pre, x);
}

static void writeStreams(int n, int64_t hidden, float* streams, const float* out, const float* post, const float* comb) {
  constexpr int64_t kStep = 256;  // columns at a time: old values of all streams are kept aside
  float old[kMaxStreams][kStep];
  for (int64_t i = 0; i < hidden; i += kStep) {
    const int64_t width = hidden - i < kStep ? hidden - i : kStep;
    for (int j = 0; j < n; j++) std::memcpy(old[j], streams + j * hidden + i, width * sizeof(float));
    for (int k = 0; k < n; k++) {
      float* target = streams + k * hidden + i;
      for (int64_t c = 0; c < width; c++) target[c] = post[k] * out[i + c];
      for (int j = 0; j < n; j++) {
        const float weight = comb[j * n + k];
        for (int64_t c = 0; c < width; c++) target[c] += weight * old[j][c];
      }
    }
  }
}

// Scores of four heads against one or two keys.
template <int Keys>
DS4_INLINE void scoreKeys(const float* q, int64_t dim, const float* const* keys, float scale, float* scores,
                          int64_t stride) {
  v16 sums[4][Keys] = {};
  for (int64_t d = 0; d < dim; d += 16) {
    v16 key[Keys];
    for (int k = 0; k < Keys; k++) key[k] = load(keys[k] + d);
    for (int h = 0; h < 4; h++) {
      const v16 query = load(q + h * dim + d);
      for (int k = 0; k < Keys; k++) sums[h][k] += query * key[k];
    }
  }
  for (int h = 0; h < 4; h++) {
    for (int k = 0; k < Keys; k++) scores[h * stride + k] = scale * sumLanes(sums[h][k]);
  }
}

// Softmax with the sink in the denominator only; entries up to the padded count become 0.
DS4_INLINE void softmaxWithSink(float* scores, int64_t count, int64_t padded, float sink) {
  float max = sink;
  for (int64_t i = 0; i < count; i++) max = scores[i] > max ? scores[i] : max;
  for (int64_t i = count; i < padded; i++) scores[i] = -INFINITY;
  v16 sums = {};
  for (int64_t i = 0; i < padded; i += 16) {
    const v16 weights = exponential(load(scores + i) - all(max));
    store(scores + i, weights);
    sums += weights;
  }
  const float inverse = 1.0f / (sumLanes(sums) + std::exp(sink - max));
  for (int64_t i = 0; i < padded; i++) scores[i] *= inverse;
}

static void attendFour(const float* q, int64_t dim, const float* const* keys, int64_t count, const float* sinks,
                       float scale, float* scores, float* out) {
  const int64_t padded = (count + 15) / 16 * 16;
  int64_t i = 0;
  for (; i + 2 <= count; i += 2) scoreKeys<2>(q, dim, keys + i, scale, scores + i, padded);
  for (; i < count; i++) scoreKeys<1>(q, dim, keys + i, scale, scores + i, padded);
  for (int h = 0; h < 4; h++) softmaxWithSink(scores + h * padded, count, padded, sinks[h]);
  int64_t d = 0;
  for (; d + 64 <= dim; d += 64) {
    v16 sums[4][4] = {};
    for (int64_t key = 0; key < count; key++) {
      const float* row = keys[key] + d;
      const v16 values[4] = {load(row), load(row + 16), load(row + 32), load(row + 48)};
      for (int h = 0; h < 4; h++) {
        const v16 weight = all(scores[h * padded + key]);
        for (int p = 0; p < 4; p++) sums[h][p] += weight * values[p];
      }
    }
    for (int h = 0; h < 4; h++) {
      for (int p = 0; p < 4; p++) store(out + h * dim + d + 16 * p, sums[h][p]);
    }
  }
  for (; d < dim; d += 16) {
    v16 sums[4] = {};
    for (int64_t key = 0; key < count; key++) {
      const v16 values = load(keys[key] + d);
      for (int h = 0; h < 4; h++) sums[h] += all(scores[h * padded + key]) * values;
    }
    for (int h = 0; h < 4; h++) store(out + h * dim + d, sums[h]);
  }
}

static void scoreEntries(const float* query, const float* headWeights, int heads, int64_t dim, const float* entries,
                         int64_t count, float scale, float* scores) {
  int64_t entry = 0;
  for (; entry + 4 <= count; entry += 4) {
    const float* rows = entries + entry * dim;
    float totals[4] = {};
    for (int h = 0; h < heads; h++) {
      v16 sums[4] = {};
      for (int64_t d = 0; d < dim; d += 16) {
        const v16 q = load(query + h * dim + d);
        for (int e = 0; e < 4; e++) sums[e] += q * load(rows + e * dim + d);
      }
      for (int e = 0; e < 4; e++) {
        const float match = sumLanes(sums[e]);
        totals[e] += match > 0 ? headWeights[h] * match : 0;
      }
    }
    for (int e = 0; e < 4; e++) scores[entry + e] = totals[e] * scale;
  }
  for (; entry < count; entry++) {
    float total = 0;
    for (int h = 0; h < heads; h++) {
      v16 sums = {};
      for (int64_t d = 0; d < dim; d += 16) sums += load(query + h * dim + d) * load(entries + entry * dim + d);
      const float match = sumLanes(sums);
      total += match > 0 ? headWeights[h] * match : 0;
    }
    scores[entry] = total * scale;
  }
}

static void swiglu(const float* gate, const float* up, int64_t width, float limit, float* out) {
  for (int64_t i = 0; i < width; i += 16) {
    const v16 g = minimum(load(gate + i), all(limit));
    const v16 u = maximum(minimum(load(up + i), all(limit)), all(-limit));
    // For g below -87 the exponential is capped, the quotient is about 1e-36: as good as zero.
    const v16 e = exponential(minimum(-g, all(87.0f)));
    store(out + i, g / (all(1.0f) + e) * u);
  }
}

static void addScaled(float* out, const float* x, float weight, int64_t width) {
  for (int64_t i = 0; i < width; i++) out[i] += weight * x[i];
}

static void poolWindow(const PoolWindow& w, float* entry) {
  for (int64_t c = 0; c < w.width; c += 16) {
    v16 max = all(-INFINITY);
    for (int t = 0; t < w.terms; t++) max = maximum(max, load(w.gate[t] + c) + load(w.ape[t] + c));
    v16 total = {}, sum = {};
    for (int t = 0; t < w.terms; t++) {
      const v16 weight = exponential(load(w.gate[t] + c) + load(w.ape[t] + c) - max);
      total += weight;
      sum += weight * load(w.kv[t] + c);
    }
    store(entry + c, sum / total);
  }
  normRow(entry, w.width, w.normWeight, w.normEpsilon);
}

// As many independent sums as hide the latency and still fit the registers.
#if defined(__AVX512F__)
constexpr int kChains = 12;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int kChains = 6;
#else
constexpr int kChains = 3;
#endif

static int64_t multiplyAdds(int64_t rounds, float* sink) {
  const v16 factor = all(*sink), step = all(0.25f);
  v16 sums[kChains] = {};
  for (int64_t round = 0; round < rounds; round++) {
    for (int chain = 0; chain < kChains; chain++) sums[chain] = sums[chain] * factor + step;
  }
  for (int chain = 1; chain < kChains; chain++) sums[0] += sums[chain];
  *sink = sumLanes(sums[0]);
  return rounds * kChains * 16;
}

static const OpSet kOps = {readStreams, readHead,  writeStreams, normRow,     attendFour,  scoreEntries,
                           swiglu,      addScaled, poolWindow,   quantizeRow, multiplyAdds};

}  // namespace ds4::DS4_LEVEL
