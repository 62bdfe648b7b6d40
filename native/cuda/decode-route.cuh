// Decode of one token: the router's scores, the shared expert's gate and up beside them; then the choice, in every block.
//
// Bytes moved: the packed weights once.
#pragma once
#include "cuda/chain-block.cuh"
#include "cuda/gated-source.cuh"
#include "cuda/router-choice.cuh"

namespace ds4::cuda {

/// x [cols] -> scores [experts], and what chooses by them; the int8 form of sharedH [sharedGate.rows] beside it.
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

/// Scores of all experts and what is added to them for the choice, in `room` of shared memory.
struct ExpertScores {
  RouterChoice choice;
  float *scores, *bias;

  __device__ __forceinline__ ExpertScores(const RouterChoice& given, float* room)
      : choice(given), scores(room), bias(room + given.experts) {
    if (choice.bias != nullptr) choice.bias = bias;
  }
  /// By the first warp.
  __device__ __forceinline__ void stageBias(const float* from) const {
    if (from == nullptr) return;
#pragma unroll 8
    for (int e = static_cast<int>(threadIdx.x); e < choice.experts; e += 32) bias[e] = loadConstant<float>(from + e);
  }
};

/// Chooses by the scores that the route's blocks wrote, by the first warp; the first block says so for all.
__device__ __forceinline__ void chooseHere(const DecodeRoute& r, const ExpertScores& to, ChosenExperts& chosen) {
  const int lane = static_cast<int>(threadIdx.x);
#pragma unroll 8
  for (int e = lane; e < r.choice.experts; e += 32) to.scores[e] = __ldcg(r.scores + e);
  __syncwarp();
  const int token = r.choice.table != nullptr ? __ldcg(r.tokenIds) : 0;
  chooseExperts(to.choice, to.scores, token, chosen.ids, chosen.weights, r.flag);
  if (blockIdx.x != 0 || lane >= r.choice.used) return;
  r.ids[lane] = chosen.ids[lane];
  r.weights[lane] = chosen.weights[lane];
}

/// The first `routerBlocks` blocks take the router's tasks in turn, the others but the last the shared expert's. Rows: the staged row in the
/// form that needs most.
template <int Known, int KnownShared>
__device__ __forceinline__ void routeToken(const DecodeRoute& r, ChainBlock& own, int routerBlocks) {
  const StreamRoom& shared = own.room;
  const int block = static_cast<int>(blockIdx.x), gatedBlocks = static_cast<int>(gridDim.x) - 1 - routerBlocks;
  const int cols = r.router.cols;
  uint8_t* room = shared.rows();
  const int pairs = (r.router.rows + 31) / 32, routerTasks = pairs << r.routerShift;
  if (block < routerBlocks) {
    const int shift = r.routerShift;
    const bool ints = usesInt8(r.router.type);
    const StagedRows rows = stagedRows(room, 1, cols, ints);
    const float one = 1.0f;
    const auto stage = [&] {
      own.ready(r.join);
      if (ints) stageBytes(r.quantized, rows.quants, quantizedBytes(rows.stride));
      else stageRow(r.x, cols, room, false);
      __syncthreads();
    };
    const auto finish = [&](int task, float sum) {
      const int pair = task >> shift, row = 32 * pair + static_cast<int>(threadIdx.x) % 32;
      const WholeSum whole = addShare(pair << shift, task - (pair << shift), 1 << shift, sum);
      if (whole.is && row < r.router.rows) __stcg(r.scores + row, sqrtSoftplus(whole.sum));
    };
    const PairSource<Known> source(r.router, rows, one, shift);
    streamTasks(source, own.ring, block, routerTasks, routerBlocks, shared.sums(), stage, finish);
    return;
  }
  const StagedRows rows = stagedRows(room, 1, cols, true);
  const GatedSource<KnownShared> gated(r.sharedGate, r.sharedUp, nullptr, rows, r.sharedShift);
  const bool balances = block == routerBlocks + gatedBlocks;
  const int tasks = r.sharedGate.rows / 16 << r.sharedShift, first = balances ? tasks : block - routerBlocks;
  const auto stage = [&] {
    own.ready(r.join);
    stageBytes(r.quantized, rows.quants, quantizedBytes(rows.stride));
    __syncthreads();
  };
  const auto finish = [&](int task, float sum) {
    const int shift = r.sharedShift, panel = task >> shift, width = r.sharedGate.rows;
    const WholeSum whole = addShare(routerTasks + (panel << shift), task - (panel << shift), 1 << shift, sum);
    if (whole.is) finishGated(whole.sum, r.sharedLimit, r.sharedH, r.sharedQuantized, width, panel);
  };
  streamTasks(gated, own.ring, first, tasks, gatedBlocks, shared.sums(), stage, finish);
  own.balance(r.join);
}

}  // namespace ds4::cuda
