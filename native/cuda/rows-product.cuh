// Decode: few activation rows (1 to 8 at a time) times two panels by one block. Its warps share the columns in turns of 128,
// their sums meet in shared memory, always in the same order.
#pragma once
#include "cuda/float-rows.cuh"
#include "cuda/int-weights.cuh"

namespace ds4::cuda {

constexpr int kRowTokens = 8;
constexpr int kRowCopies = 32;

/// Shared memory of the row kernels: warps x [8 tokens][32 rows] partial sums, then the tables of IQ2_XXS where needed.
struct RowShared {
  float* partial;
  const uint8_t* lattice;
};

__device__ __forceinline__ RowShared rowShared(bool needsLattice) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  uint8_t* base = dynamicShared();
  uint8_t* lattice = base + warps * kRowTokens * 32 * 4;
  if (needsLattice) {
    SharedLattice<kRowCopies>::fill(lattice);
    __syncthreads();
  }
  return {reinterpret_cast<float*>(base), lattice};
}

/// Two panels of one type and the rows of the input that meet them. The second may equal the first where there is none.
struct RowJob {
  int type, cols;
  const uint8_t* panels[2];
  Input input;
  RowList rows;
  int split = 0, splits = 1;  // which part of the columns is this block's, of how many

  __device__ __forceinline__ int firstTurn(const Lane& lane) const { return split * static_cast<int>(blockDim.x / 32) + lane.warp; }
  __device__ __forceinline__ int turns() const { return splits * static_cast<int>(blockDim.x / 32); }
};

template <int Type, int Rows>
__device__ __forceinline__ void intRows(const RowJob& job, int firstToken, const RowShared& shared) {
  const Lane lane = ownLane();
  const int subs = job.cols / 32;
  const SharedLattice<kRowCopies> lattice(shared.lattice);
  const uint8_t* panel = lane.panel == 0 ? job.panels[0] : job.panels[1];
  const int last = job.rows.count - 1;
  const uint8_t* quants = job.input.quants(job.rows.at(min(firstToken + lane.lane / 4, last))) + 8 * lane.pair;
  const float *scales[2], *sums[2];
#pragma unroll
  for (int t = 0; t < Rows; t++) {
    const int row = job.rows.at(min(firstToken + (Rows == 1 ? 0 : 2 * lane.pair + t), last));
    scales[t] = job.input.scales(row);
    sums[t] = job.input.sums(row);
  }
  float total[8] = {};
  for (int chunk = job.firstTurn(lane); chunk * kChunkSubs < subs; chunk += job.turns()) {
    IntChunk<Type> weights;
    weights.load(panel, chunk, subs, lane);
    float4 chunkScales[2];
#pragma unroll
    for (int t = 0; t < Rows; t++) chunkScales[t] = loadConstant<float4>(scales[t] + chunk * kChunkSubs);
#pragma unroll
    for (int s = 0; s < kChunkSubs; s++) {
      const int at = chunk * kChunkSubs + s;
      if (at >= subs) break;
      const uint2 x = loadConstant<uint2>(quants + 32 * at);
      float xScales[2] = {};
      float2 xSums[2] = {};
#pragma unroll
      for (int t = 0; t < Rows; t++) {
        const float4& four = chunkScales[t];
        xScales[t] = s == 0 ? four.x : s == 1 ? four.y : s == 2 ? four.z : four.w;
        if (IntChunk<Type>::kMins) xSums[t] = loadConstant<float2>(sums[t] + 2 * at);
      }
      IntSub sub;
      weights.unpack(s, chunk, lane, lattice, sub);
      addSub<IntChunk<Type>::kMins, Rows>(sub, x, xScales, xSums, total);
    }
  }
  float* partial = shared.partial + lane.warp * kRowTokens * 32 + 16 * lane.panel + 4 * lane.quad;
#pragma unroll
  for (int c = 0; c < 8; c++) {
    if (Rows == 1 && (c % 2 != 0 || lane.pair != 0)) continue;
    partial[(2 * lane.pair + c % 2) * 32 + c / 2] = total[c];
  }
}

__device__ __forceinline__ void floatRows(const RowJob& job, int firstToken, int count, const RowShared& shared) {
  const Lane lane = ownLane();
  const uint8_t* panel = lane.panel == 0 ? job.panels[0] : job.panels[1];
  const Turns turns{job.firstTurn(lane), job.turns()};
  for (int first = 0; first < count; first += kFloatTokens) {
    const float* x[kFloatTokens];
#pragma unroll
    for (int t = 0; t < kFloatTokens; t++) {
      x[t] = first + t < count
                 ? job.input.x + static_cast<int64_t>(job.rows.at(firstToken + first + t)) * job.cols
                 : nullptr;
    }
    float* partial = shared.partial + (lane.warp * kRowTokens + first) * 32;
    switch (job.type) {
      case kF32: plainRows<kF32>(panel, job.cols, x, lane, turns, partial); break;
      case kF16: plainRows<kF16>(panel, job.cols, x, lane, turns, partial); break;
      case kBf16: plainRows<kBf16>(panel, job.cols, x, lane, turns, partial); break;
      case kMxfp4: mxfp4Rows(panel, job.cols, x, lane, turns, partial); break;
      default: rareRows(job.type, panel, job.cols, x, turns, partial); break;
    }
  }
}

/// Sums of the activation rows [firstToken, firstToken + count), count 1 to 8 (Rows 1: exactly 1), in partial; read them
/// with `rowSum`. Ends with a barrier; before the next product another must follow.
template <int Rows>
__device__ __forceinline__ void rowsProduct(const RowJob& job, int firstToken, int count, const RowShared& shared) {
  switch (job.type) {
    case kQ80: intRows<kQ80, Rows>(job, firstToken, shared); break;
    case kQ4K: intRows<kQ4K, Rows>(job, firstToken, shared); break;
    case kQ2K: intRows<kQ2K, Rows>(job, firstToken, shared); break;
    case kIq2Xxs: intRows<kIq2Xxs, Rows>(job, firstToken, shared); break;
    default: floatRows(job, firstToken, count, shared); break;
  }
  __syncthreads();
}

/// The sum of one of the 32 rows with activation row `token` of the last product.
__device__ __forceinline__ float rowSum(const RowShared& shared, int token, int row) {
  const int warps = static_cast<int>(blockDim.x) / 32;
  float sum = 0;
  for (int warp = 0; warp < warps; warp++) sum += shared.partial[(warp * kRowTokens + token) * 32 + row];
  return sum;
}

}  // namespace ds4::cuda
