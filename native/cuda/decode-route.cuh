// Decode of one token: the router's products and choice, the shared expert's gate and up beside it.
//
// Bytes moved: the packed weights once. The router's choice hides behind the shared expert.
#pragma once
#include "cuda/chain-block.cuh"
#include "cuda/gated-source.cuh"
#include "cuda/router-choice.cuh"

namespace ds4::cuda {

/// x [cols] -> scores [experts], then the choice; the int8 form of sharedH [sharedGate.rows] beside it.
struct DecodeRoute {
  Matrix router, sharedGate, sharedUp;
  RouterChoice choice;
  HyperJoin join;
  const float* x;
  const uint8_t* quantized;  // of x
  const int32_t* tokenIds;
  float *scores, *sharedH;
  uint8_t* sharedQuantized;
  int32_t* ids;
  float* weights;
  int32_t* flag;
  float sharedLimit;
  int routerShift, sharedShift, padding;  // tasks per pair and per panel are 2^shift
};

__device__ unsigned int routerArrivals;

/// Waits for the scores of all pairs of panels, then chooses, by the first warp; always in the same block, which has the code at hand.
__device__ __forceinline__ void chooseLast(const DecodeRoute& r, int pairs, float* scores) {
  if (threadIdx.x >= 32) return;
  if (threadIdx.x == 0) {
    while (loadAcquire(&routerArrivals) != static_cast<unsigned int>(pairs)) {
    }
    routerArrivals = 0;
  }
  __syncwarp();
#pragma unroll 8
  for (int e = static_cast<int>(threadIdx.x); e < r.choice.experts; e += 32) scores[e] = __ldcg(r.scores + e);
  __syncwarp();
  chooseExperts(r.choice, scores, *r.tokenIds, r.ids, r.weights, r.flag);
}

/// The first `routerBlocks` blocks take the router's tasks in turn, the others but the last two the shared expert's. Rows: scores
/// [experts] and the staged row in the form that needs most.
__device__ __forceinline__ void routeToken(const DecodeRoute& r, ChainBlock& own, int routerBlocks) {
  const StreamRoom& shared = own.room;
  const int block = static_cast<int>(blockIdx.x), gatedBlocks = static_cast<int>(gridDim.x) - 2 - routerBlocks;
  const int cols = r.router.cols;
  uint8_t* room = shared.rows() + r.choice.experts * 4;
  const int pairs = (r.router.rows + 31) / 32, routerTasks = pairs << r.routerShift;
  if (block < routerBlocks) {
    const int shift = r.routerShift;
    const bool ints = usesInt8(r.router.type);
    const StagedRows rows = stagedRows(room, 1, cols, ints);
    const float one = 1.0f;
    const auto stage = [&] {
      own.ready(r.join);
      if (ints) stageBytes(r.quantized, rows.quants, quantizedBytes(rows.stride));
      else stageRow(r.x, cols, rows, false, true);
      __syncthreads();
    };
    const auto finish = [&](int task, float sum) {
      const int pair = task >> shift, row = 32 * pair + static_cast<int>(threadIdx.x) % 32;
      if (!addShare(pair << shift, task - (pair << shift), 1 << shift, sum)) return;
      if (row < r.router.rows) __stcg(r.scores + row, sqrtSoftplus(sum));
      __syncwarp();
      if (threadIdx.x % 32 == 0) addRelease(&routerArrivals, 1);
    };
    const PairSource<false> source(r.router, rows, one, shift);
    streamTasks(source, own.ring, block, routerTasks, routerBlocks, shared.sums(), stage, finish);
    return;
  }
  if (block == routerBlocks + gatedBlocks) {
    own.ready(r.join);
    chooseLast(r, pairs, reinterpret_cast<float*>(shared.rows()));
    return;
  }
  const StagedRows rows = stagedRows(room, 1, cols, true);
  const GatedSource gated(r.sharedGate, r.sharedUp, nullptr, rows, r.sharedShift);
  const bool balances = block > routerBlocks + gatedBlocks;
  const int tasks = r.sharedGate.rows / 16 << r.sharedShift, first = balances ? tasks : block - routerBlocks;
  const auto stage = [&] {
    own.ready(r.join);
    stageBytes(r.quantized, rows.quants, quantizedBytes(rows.stride));
    __syncthreads();
  };
  const auto finish = [&](int task, float sum) {
    const int shift = r.sharedShift, panel = task >> shift, width = r.sharedGate.rows;
    if (!addShare(routerTasks + (panel << shift), task - (panel << shift), 1 << shift, sum)) return;
    finishGated(sum, r.sharedLimit, {r.sharedH, {r.sharedQuantized, width}, width}, panel);
  };
  streamTasks(gated, own.ring, first, tasks, gatedBlocks, shared.sums(), stage, finish);
  own.balance(r.join);
}

}  // namespace ds4::cuda
