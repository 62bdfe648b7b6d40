// Prefill of the int8 types: a block of four warps multiplies 128 weight rows (8 panels, two per warp) by 64 activation rows.
//
// Weights go from memory to the operand registers without a detour; activations of 128 columns at a time lie in shared
// memory, two pieces in turn, copied while the other is used. Sums stay in registers over all columns.
#pragma once
#include "cuda/int-weights.cuh"
#include "cuda/products.cuh"

namespace ds4::cuda {

constexpr int kTileTokens = 64, kTileWarps = 4, kTileTiles = kTileTokens / 8;
constexpr int kTileCopies = 8;

/// Rows of quants are 160 bytes apart: the four that a quarter of a warp reads lie in different banks.
struct TileStage {
  uint8_t quants[kTileTokens][160];
  float scales[kTileTokens][4];
  float sums[kTileTokens][8];
};

struct TileShared {
  TileStage stages[2];
  int rowOf[kTileTokens];
  uint8_t lattice[SharedLattice<kTileCopies>::kBytes];
};

/// Shared memory of the tile kernels, the same for all types.
__device__ __forceinline__ TileShared& tileShared() { return *reinterpret_cast<TileShared*>(dynamicShared()); }

__device__ __forceinline__ void fillStage(TileStage& stage, const int* rowOf, const Input& input, int chunk, bool mins) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kTileTokens * 8 / (32 * kTileWarps); i++) {
    const int token = thread / 8 + i * 4 * kTileWarps, piece = thread % 8;
    copyAsync16(stage.quants[token] + 16 * piece, input.quants(rowOf[token]) + 128 * chunk + 16 * piece);
  }
  if (thread < kTileTokens) copyAsync16(stage.scales[thread], input.scales(rowOf[thread]) + 4 * chunk);
  if (mins) {
    copyAsync16(stage.sums[thread / 2] + thread % 2 * 4, input.sums(rowOf[thread / 2]) + 8 * chunk + thread % 2 * 4);
  }
  closeCopyGroup();
}

/// One warp's sums [tile of 8 activation rows][as in addSub] of its two panels with rows [first, first + 64).
template <int Type>
__device__ __forceinline__ void tileProduct(const uint8_t* panel, int cols, const Input& input, const RowList& rows,
                                            int first, float (&sums)[kTileTiles][8]) {
  TileShared& shared = tileShared();
  const Lane lane = ownLane();
  const SharedLattice<kTileCopies> lattice(shared.lattice);
  const int subs = cols / 32, chunks = (subs + kChunkSubs - 1) / kChunkSubs;
  const int tiles = min(kTileTiles, (rows.count - first + 7) / 8);
  if (threadIdx.x < kTileTokens) {
    shared.rowOf[threadIdx.x] = rows.at(min(first + static_cast<int>(threadIdx.x), rows.count - 1));
  }
  __syncthreads();
  fillStage(shared.stages[0], shared.rowOf, input, 0, IntChunk<Type>::kMins);
  for (int chunk = 0; chunk < chunks; chunk++) {
    IntChunk<Type> weights;
    weights.load(panel, chunk, subs, lane);
    if (chunk + 1 < chunks) {
      fillStage(shared.stages[(chunk + 1) % 2], shared.rowOf, input, chunk + 1, IntChunk<Type>::kMins);
      waitCopyGroups<1>();
    } else {
      waitCopyGroups<0>();
    }
    __syncthreads();
    const TileStage& stage = shared.stages[chunk % 2];
#pragma unroll
    for (int s = 0; s < kChunkSubs; s++) {
      if (chunk * kChunkSubs + s >= subs) break;
      IntSub sub;
      weights.unpack(s, chunk, lane, lattice, sub);
#pragma unroll
      for (int tile = 0; tile < kTileTiles; tile++) {
        if (tile >= tiles) break;
        const uint2 x = *reinterpret_cast<const uint2*>(stage.quants[8 * tile + lane.lane / 4] + 32 * s + 8 * lane.pair);
        const int token = 8 * tile + 2 * lane.pair;
        const float scales[2] = {stage.scales[token][s], stage.scales[token + 1][s]};
        float2 mins[2] = {};
        if (IntChunk<Type>::kMins) {
          mins[0] = *reinterpret_cast<const float2*>(stage.sums[token] + 2 * s);
          mins[1] = *reinterpret_cast<const float2*>(stage.sums[token + 1] + 2 * s);
        }
        addSub<IntChunk<Type>::kMins, 2>(sub, x, scales, mins, sums[tile]);
      }
    }
    __syncthreads();
  }
}

__device__ __forceinline__ void tileProductOf(int type, const uint8_t* panel, int cols, const Input& input,
                                              const RowList& rows, int first, float (&sums)[kTileTiles][8]) {
#pragma unroll
  for (int tile = 0; tile < kTileTiles; tile++) {
#pragma unroll
    for (int c = 0; c < 8; c++) sums[tile][c] = 0;
  }
  switch (type) {
    case kQ80: return tileProduct<kQ80>(panel, cols, input, rows, first, sums);
    case kQ4K: return tileProduct<kQ4K>(panel, cols, input, rows, first, sums);
    case kQ2K: return tileProduct<kQ2K>(panel, cols, input, rows, first, sums);
    default: return tileProduct<kIq2Xxs>(panel, cols, input, rows, first, sums);
  }
}

/// Fills the tables where the type needs them. Ends with a barrier.
__device__ __forceinline__ void prepareTiles(int type) {
  if (type == kIq2Xxs) SharedLattice<kTileCopies>::fill(tileShared().lattice);
  __syncthreads();
}

/// out[token * stride + row], four rows of a lane at a time; `row` is the panel's first, `end` the first that is no output.
__device__ __forceinline__ void storeTile(const float (&sums)[kTileTiles][8], float* out, int64_t stride, int row,
                                          int end, int tokens, const Lane& lane) {
  const int at = row + 4 * lane.quad;
#pragma unroll
  for (int tile = 0; tile < kTileTiles; tile++) {
#pragma unroll
    for (int t = 0; t < 2; t++) {
      const int token = 8 * tile + 2 * lane.pair + t;
      if (token >= tokens) continue;
      float* to = out + token * stride + at;
      if (stride % 4 == 0 && at + 4 <= end) {
        *reinterpret_cast<float4*>(to) = make_float4(sums[tile][t], sums[tile][2 + t], sums[tile][4 + t], sums[tile][6 + t]);
      } else {
        for (int i = 0; i < 4; i++) {
          if (at + i < end) to[i] = sums[tile][2 * i + t];
        }
      }
    }
  }
}

}  // namespace ds4::cuda
