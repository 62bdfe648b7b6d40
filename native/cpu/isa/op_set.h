// Everything but the products, per work item (a token, a few heads, a window), compiled for each instruction set
// from one source (ops_impl.h). The drivers in ops_*.cpp split batches into items.
#pragma once
#include <cstdint>

namespace ds4 {

/// Weights and constants of one hyper-connection read.
struct HyperRead {
  int n;  // streams
  int64_t hidden;
  const float* base;        // [2n + n*n], or [n] at the head
  const float* scale;       // [3], or [1] at the head
  const float* normWeight;  // [hidden]: of the norm that follows
  float normEpsilon, hyperEpsilon;
  int sinkhornIterations;
};

/// One compressor's constants and where a window's terms come from.
struct PoolWindow {
  int terms;                // rows that are mixed, at most 2 * ratio
  const float* const* kv;   // per term: `width` values
  const float* const* gate;
  const float* const* ape;
  int64_t width;
  const float* normWeight;
  float normEpsilon;
};

/// Where an activation row's int8 form goes (see PreparedInput).
struct QuantizedRow {
  int8_t* quants;
  float *scales, *sums16, *sums32;
  int32_t *offsets128, *offsets43;
};

struct OpSet {
  /// mixes [2n + n*n] is fn x streams without the norm. Writes x [hidden], post [n], comb [n, n].
  void (*readStreams)(const HyperRead& w, const float* streams, const float* mixes, float* x, float* post, float* comb);
  /// The same at the head: mixes [n]; x = norm(sum of pre * streams).
  void (*readHead)(const HyperRead& w, const float* streams, const float* mixes, float* x);
  /// streams[k] = post[k] * out + sum of comb[j][k] * streams[j], in place.
  void (*writeStreams)(int n, int64_t hidden, float* streams, const float* out, const float* post, const float* comb);
  /// In place; weight null = 1.
  void (*normRow)(float* x, int64_t width, const float* weight, float epsilon);
  /// Four heads against `count` key rows. q and out are [4, dim]; scores is scratch [4, count rounded up to 16].
  void (*attendFour)(const float* q, int64_t dim, const float* const* keys, int64_t count, const float* sinks,
                     float scale, float* scores, float* out);
  /// scores[i] = scale * sum over heads of weight * relu(q_h . entry_i), i < count.
  void (*scoreEntries)(const float* query, const float* headWeights, int heads, int64_t dim, const float* entries,
                       int64_t count, float scale, float* scores);
  /// out = silu(min(gate, limit)) * clamp(up, limit), elementwise.
  void (*swiglu)(const float* gate, const float* up, int64_t width, float limit, float* out);
  /// out[i] += weight * x[i]
  void (*addScaled)(float* out, const float* x, float weight, int64_t width);
  /// Per channel the softmax(gate + ape)-weighted sum of kv, then the norm.
  void (*poolWindow)(const PoolWindow& window, float* entry);
  /// Activations to int8 with a scale per 32 columns; cols is a multiple of 32.
  void (*quantizeRow)(const float* x, int64_t cols, const QuantizedRow& row);
  /// Nothing but float32 multiply-adds in registers, as a yardstick: returns how many; *sink keeps them alive.
  int64_t (*multiplyAdds)(int64_t rounds, float* sink);
};

const OpSet* genericOps();
const OpSet* avx2Ops();
const OpSet* avx512Ops();
const OpSet* neonOps();

/// The set that goes with kernels().
const OpSet& ops();

}  // namespace ds4
