// Decode of one token: products of dense matrices with one input row each, in one launch.
//
// Bytes moved: the packed weights once; inputs from the second-level cache, once per block. On an H200, within decode: 36 MB of
// Q8_0 in 16 to 20 us (43 to 52 % of copy speed, the start and the end of the launch included), the head's 563 MB in 128 to 160 us
// (82 to 103 %).
#include "cuda/hyper-join.cuh"
#include "cuda/hyper-tail.cuh"
#include "cuda/pair-source.cuh"
#include "cuda/reductions.cuh"
#include "cuda/shared-sums.cuh"
#include "cuda/stream-rows.cuh"

namespace ds4::cuda {

constexpr int kMostStreamProducts = 8;

/// out [matrix.rows] = x [cols] times the matrix, times outWeight [rows] where it is given. 2^splitShift tasks share the columns
/// of a pair of panels.
struct StreamProduct {
  Matrix matrix;
  const float* x;            // null: only the int8 form is there
  const uint8_t* quantized;  // int8 form of x; null: the block makes it
  float* out;                // null: not written
  uint8_t* outQuantized;     // int8 form of a row of outStride columns, these from outFirst on; null: not written
  const float* outWeight;
  float* outSquares;  // [rows / 32] sums of squares before outWeight; null: not written
  int outStride, outFirst;
  int splitShift, firstShare;  // where its shared sums begin
};

/// `squares` [squareCount]: the inputs are scaled to unit mean square by these sums; null: they are not. `tail`: what follows each
/// sum of the only product. `balance`: what a block of its own does beside; its comb null: nothing.
struct StreamProducts {
  StreamProduct items[kMostStreamProducts];
  HyperTail tail;
  HyperJoin balance;
  const float* squares;
  float normEpsilon;
  int squareCount;
  int count, padding;
};

__device__ __forceinline__ void finishProduct(const StreamProduct& product, int pair, float sum) {
  const int lane = static_cast<int>(threadIdx.x) % 32, row = 32 * pair + lane;
  const bool inside = row < product.matrix.rows;
  if (product.outSquares != nullptr) {
    const float squares = warpSum(inside ? sum * sum : 0.0f);
    if (lane == 0) product.outSquares[pair] = squares;
  }
  if (product.outWeight != nullptr && inside) sum *= loadConstant<float>(product.outWeight + row);
  if (product.out != nullptr && inside) product.out[row] = sum;
  if (product.outQuantized == nullptr) return;
  storeQuantized(inside ? sum : 0.0f, {product.outQuantized, product.outStride}, product.outFirst + 32 * pair);
}

/// 256 threads, blocks with `perBlock` tasks each of all in turn, one more for `balance`. Shared memory as `shared` says, the
/// staged row in the form that needs most.
extern "C" __global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    stream_products(const __grid_constant__ StreamProducts p, int tableBytes, int ringStageBytes, int stages, int perBlock) {
  const StreamRoom shared{tableBytes, ringStageBytes, stages};
  letNextStart();
  const int blocks = static_cast<int>(gridDim.x) - (p.balance.comb != nullptr ? 1 : 0);
  const int block = static_cast<int>(blockIdx.x);
  if (block >= blocks) {
    __shared__ JoinRoom joinRoom;
    waitForPrevious();
    balanceStreams(p.balance, joinRoom);
    return;
  }
  __shared__ uint64_t barriers[kStreamWarps][kMostStages];
  Ring ring(shared.ring(), barriers, shared.stageBytes, shared.stages);
  if (shared.tableBytes > 0) SharedLattice<kStreamCopies>::fill(StreamRoom::tables());
  const int begin = perBlock * block, end = begin + perBlock;
  bool waited = false;
  float factor = 1.0f;
  int before = 0;  // tasks of the products before this one
#pragma unroll 1
  for (int i = 0; i < p.count; i++) {
    const StreamProduct& product = p.items[i];
    const Matrix& matrix = product.matrix;
    const int shift = product.splitShift, own = (matrix.rows + 31) / 32 << shift;
    const int first = max(begin - before, 0), last = min(end - before, own);
    before += own;
    if (first >= last) continue;
    const StagedRows rows = stagedRows(shared.rows(), 1, matrix.cols, usesInt8(matrix.type));
    const auto stage = [&] {
      if (!waited) {
        waitForPrevious();
        waited = true;
        if (p.squares != nullptr) {
          float squares = 0;
#pragma unroll 1
          for (int at = static_cast<int>(threadIdx.x) % 32; at < p.squareCount; at += 32) squares += __ldcg(p.squares + at);
          factor = 1.0f / sqrtf(warpSum(squares) / static_cast<float>(matrix.cols) + p.normEpsilon);
        }
      }
      if (!usesInt8(matrix.type)) stageRow(product.x, matrix.cols, rows, false, true);
      else if (product.quantized == nullptr) stageRow(product.x, matrix.cols, rows, true, false);
      else stageBytes(product.quantized, rows.quants, quantizedBytes(rows.stride));
      __syncthreads();
    };
    const auto finish = [&](int task, float sum) {
      const int pair = task >> shift;
      if (!addShare(product.firstShare + (pair << shift), task - (pair << shift), 1 << shift, sum)) return;
      if (p.tail.streams != nullptr) finishBlock(p.tail, pair, sum);
      else finishProduct(product, pair, sum);
    };
    const PairSource<false> source(matrix, rows, factor, shift);
    if (isLastWarp()) source.prefetch(first, last);
    if (p.tail.streams != nullptr) prefetchColumns(p.tail, first >> shift);
    streamTasks(source, ring, first, last, 1, shared.sums(), stage, finish);
  }
  if (!waited) waitForPrevious();
}

}  // namespace ds4::cuda
