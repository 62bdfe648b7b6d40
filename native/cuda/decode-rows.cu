// Decode of one token: queries and the new key row, each by a warp: norm, rotation, the key's place in the window.
// Latency alone: 128 KiB of queries of 64 heads in and out.
#include "cuda/overlap.cuh"
#include "cuda/reductions.cuh"
#include "decode_state.cuh"
#include "kv-rows.cuh"

namespace ds4::cuda {

/// queries [heads, dim], normed without weight and rotated in place; indexer queries [indexerHeads, indexerDim], rotated; the key
/// row kv [dim], normed with its weight, rotated and written in parts to the ring. The rotated values are a row's last 2 * pairs.
struct DecodeRows {
  const DecodeState* state;
  float *queries, *indexerQueries, *kv;
  const float *normWeight, *cosines, *sines;
  __half* ring;
  int heads, dim, indexerHeads, indexerDim, pairs, ringRows;
  float epsilon;
  int parts;
};

constexpr int kMostCouples = 16;  // pairs of values per lane: rows of up to 1024

/// A warp per row: queries, indexer queries, the key. dim at most 1024.
extern "C" __global__ void __launch_bounds__(128) decode_rows(const __grid_constant__ DecodeRows d) {
  letNextStart();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int index = static_cast<int>(blockIdx.x) * 4 + static_cast<int>(threadIdx.x) / 32;
  const bool query = index < d.heads, indexer = !query && index < d.heads + d.indexerHeads;
  if (index > d.heads + d.indexerHeads) return;
  waitForPrevious();
  const int dim = indexer ? d.indexerDim : d.dim, couples = dim / 2, tail = couples - d.pairs;
  float* base = query ? d.queries + static_cast<int64_t>(index) * dim
                      : indexer ? d.indexerQueries + static_cast<int64_t>(index - d.heads) * dim : d.kv;
  float2* row = reinterpret_cast<float2*>(base);
  float2 values[kMostCouples];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kMostCouples; i++) {
    const int at = 32 * i + lane;
    values[i] = at < couples ? __ldcg(row + at) : make_float2(0, 0);
    squares += values[i].x * values[i].x + values[i].y * values[i].y;
  }
  const float factor = indexer ? 1.0f : 1.0f / sqrtf(warpSum(squares) / static_cast<float>(dim) + d.epsilon);
  const int position = d.state->start;
  __half* place = d.ring + static_cast<int64_t>(position % d.ringRows) * d.parts * d.dim;
#pragma unroll
  for (int i = 0; i < kMostCouples; i++) {
    const int at = 32 * i + lane;
    if (at >= couples) continue;
    float x = values[i].x * factor, y = values[i].y * factor;
    if (!query && !indexer) {
      x *= d.normWeight[2 * at];
      y *= d.normWeight[2 * at + 1];
    }
    if (at >= tail) {
      const float c = __ldcg(d.cosines + at - tail), s = __ldcg(d.sines + at - tail);
      const float turned = x * c - y * s;
      y = x * s + y * c;
      x = turned;
    }
    if (query || indexer) {
      row[at] = make_float2(x, y);
    } else {
      storeParts(place, dim, d.parts, 2 * at, x, y);
    }
  }
}

}  // namespace ds4::cuda
