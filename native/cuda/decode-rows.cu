// Decode of one token: queries and the new key row, each by a warp: norm, rotation, the key's place in the window. Blocks of
// their own feed the layer's compressors beside (compress.cuh).
// Latency alone: 128 KiB of queries of 64 heads in and out.
#include "cuda/compress.cuh"

namespace ds4::cuda {

/// queries [heads, dim], normed without weight and rotated in place; indexer queries [indexerHeads, indexerDim], rotated; the key
/// row kv [dim], normed with its weight, rotated and written in parts to the ring. The rotated values are a row's last 2 * pairs.
/// Compressors: the layer's and the indexer's.
struct DecodeRows {
  const DecodeState* state;
  float *queries, *indexerQueries, *kv;
  const float *normWeight, *cosines, *sines;
  __half* ring;
  int heads, dim, indexerHeads, indexerDim, pairs, ringRows;
  float epsilon;
  int parts;
  Compress compressors[2];
};

constexpr int kRowsPerBlock = kCompressThreads / 32;
constexpr int kMostCouples = 16;  // pairs of values per lane: rows of up to 1024

/// Row `index` of queries, indexer queries and the key, by a warp. dim at most 1024.
__device__ __forceinline__ void turnRow(const DecodeRows& d, int index) {
  const int lane = static_cast<int>(threadIdx.x) % 32, position = d.state->start;
  const bool query = index < d.heads, indexer = !query && index < d.heads + d.indexerHeads;
  const bool key = index == d.heads + d.indexerHeads;
  const int dim = indexer ? d.indexerDim : d.dim, couples = dim / 2, tail = couples - d.pairs;
  float2 weights[kMostCouples], values[kMostCouples];
#pragma unroll
  for (int i = 0; i < kMostCouples; i++) {
    const int at = 32 * i + lane;
    weights[i] = key && at < couples ? loadConstant<float2>(d.normWeight + 2 * at) : make_float2(1, 1);
  }
  waitForPrevious();
  if (index > d.heads + d.indexerHeads) return;
  float* base = query ? d.queries + static_cast<int64_t>(index) * dim
                      : indexer ? d.indexerQueries + static_cast<int64_t>(index - d.heads) * dim : d.kv;
  float2* row = reinterpret_cast<float2*>(base);
#pragma unroll
  for (int i = 0; i < kMostCouples; i++) {
    const int at = 32 * i + lane;
    values[i] = at < couples ? __ldcg(row + at) : make_float2(0, 0);
  }
  // The angle of the lane's first rotated couple, beside the values.
  const int firstPair = (lane - tail) & 31;
  float cosine = 1, sine = 0;
  if (firstPair < d.pairs) {
    cosine = __ldcg(d.cosines + firstPair);
    sine = __ldcg(d.sines + firstPair);
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kMostCouples; i++) squares += values[i].x * values[i].x + values[i].y * values[i].y;
  const float factor = indexer ? 1.0f : 1.0f / sqrtf(warpSum(squares) / static_cast<float>(dim) + d.epsilon);
  __half* place = d.ring + static_cast<int64_t>(position % d.ringRows) * d.parts * d.dim;
#pragma unroll
  for (int i = 0; i < kMostCouples; i++) {
    const int at = 32 * i + lane;
    if (at >= couples) continue;
    float x = values[i].x * factor * weights[i].x, y = values[i].y * factor * weights[i].y;
    if (at >= tail) {
      const bool first = at - tail == firstPair;
      const float c = first ? cosine : __ldcg(d.cosines + at - tail), s = first ? sine : __ldcg(d.sines + at - tail);
      const float turned = x * c - y * s;
      y = x * s + y * c;
      x = turned;
    }
    if (key) {
      storeParts(place, dim, d.parts, 2 * at, x, y);
    } else {
      row[at] = make_float2(x, y);
    }
  }
}

/// Grid: the compressors' blocks, then a block per kRowsPerBlock rows.
extern "C" __global__ void __launch_bounds__(kCompressThreads) decode_rows(const __grid_constant__ DecodeRows d) {
  letNextStart();
  __shared__ float room[32];
  const int block = static_cast<int>(blockIdx.x), first = d.compressors[0].blocks;
  const int rowBlock = block - first - d.compressors[1].blocks;
  if (rowBlock >= 0) {
    turnRow(d, rowBlock * kRowsPerBlock + static_cast<int>(threadIdx.x) / 32);
  } else {
    const bool second = block >= first;
    compressBlock(d.compressors[second ? 1 : 0], second ? block - first : block, room);
  }
}

}  // namespace ds4::cuda
