// Decode of one token: products of dense matrices with one input row each.
//
// Bytes moved: the packed weights once; inputs from the second-level cache, once per block. On an H200, within decode: 36 MB of
// Q8_0 in 13 to 20 us (42 to 65 % of copy speed, what the block waits and meets for included).
#pragma once
#include "cuda/chain-block.cuh"
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
/// sum of the only product. `join`: where the input comes from.
struct StreamProducts {
  StreamProduct items[kMostStreamProducts];
  HyperTail tail;
  HyperJoin join;
  const float* squares;
  float normEpsilon;
  int squareCount;
  int count, padding;
};

static __device__ __noinline__ void finishProduct(const StreamProduct& product, int pair, float sum) {
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

/// The first `blocks` blocks take `perBlock` tasks each of all products in turn. The staged row is in the form that needs most. Types:
/// ChainTypes.
template <class Types>
__device__ __forceinline__ void streamProducts(const StreamProducts& p, ChainBlock& own, int perBlock) {
  const StreamRoom& shared = own.room;
  const int begin = perBlock * static_cast<int>(blockIdx.x), end = begin + perBlock;
  bool waited = false;
  float factor = 1.0f;
  const auto ready = [&] {
    if (waited) return;
    waited = true;
    own.ready(p.join);
    if (p.squares == nullptr) return;
    float squares = 0;
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x) % 32; at < p.squareCount; at += 32) squares += __ldcg(p.squares + at);
    factor = 1.0f / sqrtf(warpSum(squares) / static_cast<float>(p.items[0].matrix.cols) + p.normEpsilon);
  };
  int before = 0;  // tasks of the products before this one
#pragma unroll 1
  for (int i = 0; i < p.count; i++) {
    const StreamProduct& product = p.items[i];
    const Matrix& matrix = product.matrix;
    const int shift = product.splitShift, all = (matrix.rows + 31) / 32 << shift;
    const int first = max(begin - before, 0), last = min(end - before, all);
    before += all;
    if (first >= last) continue;
    const auto finish = [&](int task, float sum) {
      const int pair = task >> shift;
      const WholeSum whole = addShare(product.firstShare + (pair << shift), task - (pair << shift), 1 << shift, sum);
      if (!whole.is) return;
      if (p.tail.streams != nullptr) own.finished.add(pair, whole.sum);
      else finishProduct(product, pair, whole.sum);
    };
    if (p.tail.streams != nullptr) prefetchColumns(p.tail, first >> shift);
    const auto multiply = [&](auto type) {
      const StagedRows rows = stagedRows(shared.rows(), 1, matrix.cols, usesInt8(type));
      const auto stage = [&] {
        ready();
        if (!usesInt8(type)) stageRow(product.x, matrix.cols, shared.rows(), false);
        else if (product.quantized == nullptr) stageRow(product.x, matrix.cols, shared.rows(), true);
        else stageBytes(product.quantized, rows.quants, quantizedBytes(rows.stride));
        __syncthreads();
      };
      const PairSource<decltype(type)::kKnown> source(matrix, rows, factor, shift);
      streamTasks(source, own.ring, first, last, 1, shared.sums(), stage, finish);
    };
    if (Types::kDense != kAnyType && matrix.type == Types::kHalf) multiply(StreamType<Types::kHalf>(matrix.type));
    else multiply(StreamType<Types::kDense>(matrix.type));
  }
  if (p.tail.streams != nullptr) own.finished.finish(p.tail);
  ready();
  own.balance(p.join);
}

}  // namespace ds4::cuda
