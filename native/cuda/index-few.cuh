// The indexer's scores of one token or a few: a warp per eight heads with its queries in registers, a block per 16 entries at a
// time. All loads of a block are under way at once; entries that earlier passes left are read before the kernels ahead end.
// Every score is a sum over the heads' tiles in order, whatever the grid.
#pragma once
#include "cuda/overlap.cuh"
#include "decode_state.cuh"
#include "kv-rows.cuh"

namespace {

constexpr int kMaxSlabs = 4;  // of 32 dims
constexpr int kMaxHeads = 128;
constexpr int kFewEntries = 16, kFewThreads = kMaxHeads / 8 * 32;

// relu(match) * weight; a match that is no number counts as no match.
__device__ float counted(float match, float weight) { return match > 0 ? match * weight : 0.0f; }

// The power of two by which a head's queries are multiplied before they are split in halves is 2^-result.
__device__ int scaleExponent(float largest) {
  return largest > 0 && isfinite(largest) ? min(max(ilogbf(largest), -100), 127) - 10 : 0;
}

// Eight heads' queries as operands, and the weights of this lane's two columns of a product.
struct FewQueries {
  uint4 fragments[kMaxSlabs][2];
  float left, right;

  __device__ __forceinline__ void load(const float* query, const float* headWeights, int heads, int slabs, int warp, int lane) {
    const int head = warp * 8 + lane / 4;
    float4 q[kMaxSlabs][2];
    float largest = 0;
#pragma unroll
    for (int slab = 0; slab < kMaxSlabs; slab++) {
#pragma unroll
      for (int step = 0; step < 2; step++) {
        const float* from = query + head * slabs * 32 + slab * 32 + lane % 4 * 8 + step * 4;
        q[slab][step] = make_float4(0, 0, 0, 0);
        if (head < heads && slab < slabs) q[slab][step] = *reinterpret_cast<const float4*>(from);
      }
    }
    float weight = head < heads ? headWeights[head] : 0.0f;
#pragma unroll
    for (int slab = 0; slab < kMaxSlabs; slab++) {
#pragma unroll
      for (int step = 0; step < 2; step++) {
        const float4 v = q[slab][step];
        largest = fmaxf(largest, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const int exponent = scaleExponent(largest);
    const float up = ldexpf(1.0f, -exponent);
    weight *= ldexpf(1.0f, exponent);
    left = __shfl_sync(0xffffffffu, weight, lane % 4 * 8);
    right = __shfl_sync(0xffffffffu, weight, lane % 4 * 8 + 4);
#pragma unroll
    for (int slab = 0; slab < kMaxSlabs; slab++) {
#pragma unroll
      for (int step = 0; step < 2; step++) {
        const float4 v = q[slab][step];
        uint32_t first[2], second[2];
        ds4::cuda::splitPair(first, v.x * up, v.y * up);
        ds4::cuda::splitPair(second, v.z * up, v.w * up);
        fragments[slab][step] = make_uint4(first[0], second[0], first[1], second[1]);
      }
    }
  }
};

// 16 entries as operands: rows base + lane / 4 and 8 further, zeros from `visible` on.
template <int PARTS>
struct FewRows {
  uint4 rows[PARTS][2][kMaxSlabs];

  __device__ __forceinline__ void load(const __half* entries, int base, int visible, int slabs, int lane) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int entry = base + lane / 4 + 8 * i;
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        const __half* row = entries + (static_cast<int64_t>(entry) * PARTS + part) * slabs * 32;
        const uint4* from = reinterpret_cast<const uint4*>(row) + lane % 4;
#pragma unroll
        for (int slab = 0; slab < kMaxSlabs; slab++) {
          rows[part][i][slab] = entry < visible && slab < slabs ? from[4 * slab] : make_uint4(0, 0, 0, 0);
        }
      }
    }
  }

  // The warp's heads' part of the scores of entries lane / 4 and 8 further, in the first of four lanes.
  __device__ __forceinline__ float2 score(const FewQueries& queries, int slabs) const {
    float matches[2][4] = {};
#pragma unroll
    for (int slab = 0; slab < kMaxSlabs; slab++) {
      if (slab >= slabs) break;
#pragma unroll
      for (int step = 0; step < 2; step++) {
        const uint4 q = queries.fragments[slab][step];
#pragma unroll
        for (int part = PARTS - 1; part >= 0; part--) {
          const uint4 above = rows[part][0][slab], below = rows[part][1][slab];
          const uint32_t a0 = step ? above.z : above.x, a2 = step ? above.w : above.y;
          const uint32_t a1 = step ? below.z : below.x, a3 = step ? below.w : below.y;
          if (part == 0) ds4::cuda::multiplyHalf(matches[step], a0, a1, a2, a3, q.z, q.w);
          ds4::cuda::multiplyHalf(matches[step], a0, a1, a2, a3, q.x, q.y);
        }
      }
    }
    float upper = counted(matches[0][0] + matches[1][0], queries.left) + counted(matches[0][1] + matches[1][1], queries.right);
    float lower = counted(matches[0][2] + matches[1][2], queries.left) + counted(matches[0][3] + matches[1][3], queries.right);
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
      upper += __shfl_xor_sync(0xffffffffu, upper, step);
      lower += __shfl_xor_sync(0xffffffffu, lower, step);
    }
    return make_float2(upper, lower);
  }
};

template <int PARTS>
__device__ __forceinline__ void indexFew(const DecodeState* state, int firstToken, const float* queries,
                                         const float* headWeights, const __half* entries, float* scores,
                                         int64_t scoreStride, int heads, int dim, int ratio, int topK, float scale) {
  __shared__ float sums[2][kFewThreads / 32][kFewEntries];
  ds4::cuda::letNextStart();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, slabs = dim / 32;
  const int token = firstToken + blockIdx.y, visible = (state->start + token + 1) / ratio;
  int base = blockIdx.x * kFewEntries;
  if (token >= state->count || visible <= topK || base >= visible) {
    ds4::cuda::waitForPrevious();
    return;
  }
  FewRows<PARTS> rows;
  // What this pass adds is at the end.
  const bool older = base + kFewEntries <= state->start / ratio;
  if (older) rows.load(entries, base, visible, slabs, lane);
  ds4::cuda::waitForPrevious();
  if (!older) rows.load(entries, base, visible, slabs, lane);
  FewQueries own;
  const int64_t row = static_cast<int64_t>(token) * heads;
  own.load(queries + row * dim, headWeights + row, heads, slabs, warp, lane);
  for (int room = 0; base < visible; room = 1 - room) {
    const float2 score = rows.score(own, slabs);
    if (lane % 4 == 0) {
      sums[room][warp][lane / 4] = score.x;
      sums[room][warp][lane / 4 + 8] = score.y;
    }
    const int next = base + gridDim.x * kFewEntries;
    rows.load(entries, next, visible, slabs, lane);
    __syncthreads();
    const int entry = base + threadIdx.x;
    if (threadIdx.x < kFewEntries && entry < visible) {
      float total = 0;
      for (int w = 0; w < warps; w++) total += sums[room][w][threadIdx.x];
      scores[blockIdx.y * scoreStride + entry] = total * scale;
    }
    base = next;
  }
}

}  // namespace
