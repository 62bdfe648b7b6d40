// Decode of one token: products of dense matrices with one input row each, in one launch.
//
// Bytes moved: the packed weights once; inputs from the second-level cache, once per block and matrix.
#include "cuda/hyper-tail.cuh"
#include "cuda/reductions.cuh"
#include "cuda/shared-sums.cuh"
#include "cuda/stream-rows.cuh"

namespace ds4::cuda {

constexpr int kMostStreamProducts = 8;

/// out [matrix.rows] = x [cols] times the matrix. `splits` tasks share the columns of a pair of panels.
struct StreamProduct {
  Matrix matrix;
  const float* x;
  float* out;
  int splits, firstShare;  // where its shared sums begin
};

/// `normWeight`: the inputs are scaled by it and to unit mean square first; null: they are not. `tail`: what follows each sum
/// of the only product, instead of writing it.
struct StreamProducts {
  StreamProduct items[kMostStreamProducts];
  HyperTail tail;
  const float* normWeight;
  float normEpsilon;
  int count;
};

/// Tasks of one product: pair * splits + split.
struct DenseSource {
  const StreamProduct& product;
  StagedRows rows;
  const uint8_t* tables;
  int unitCols;

  struct Place {
    const uint8_t* panel;
    int split, units;
  };

  __device__ __forceinline__ Place place(int task) const {
    const Matrix& matrix = product.matrix;
    const int pair = task / product.splits, split = task - pair * product.splits;
    const int panels = (matrix.rows + 15) / 16;
    const int panel = min(2 * pair + (static_cast<int>(threadIdx.x) >> 4 & 1), panels - 1);
    const int units = (matrix.cols + unitCols - 1) / unitCols;
    return {panelOf(matrix, 0, panel), split, (units - split + product.splits - 1) / product.splits};
  }
  template <class Stream>
  __device__ __forceinline__ void fetch(const Place& place, int unit, Stream& stream, const Lane& lane) const {
    stream.load(place.panel, unit * product.splits + place.split, product.matrix.cols, lane);
  }
  template <class Stream>
  __device__ __forceinline__ void add(const Place& place, int unit, const Stream& stream, const Lane& lane,
                                      float (&total)[8]) const {
    stream.add(unit * product.splits + place.split, lane, rows, 0, 1.0f, tables, total);
  }
};

// The factor of an RMS norm of x [cols], by the whole block.
__device__ __forceinline__ float normFactor(const float* x, int cols, float epsilon) {
  __shared__ float room[32];
  float squares = 0;
  for (int col = 4 * static_cast<int>(threadIdx.x); col < cols; col += 4 * kStreamThreads) {
    squares += dot4(__ldcg(reinterpret_cast<const float4*>(x + col)));
  }
  return 1.0f / sqrtf(blockSum(squares, room) / static_cast<float>(cols) + epsilon);
}

/// 256 threads; shared memory: sums, then tables of IQ2_XXS where `tableBytes` is not 0, then the staged row.
extern "C" __global__ void __launch_bounds__(kStreamThreads, 2)
    stream_products(const __grid_constant__ StreamProducts p, int tableBytes) {
  letNextStart();
  uint8_t* room = dynamicShared();
  float* partial = reinterpret_cast<float*>(room);
  uint8_t* tables = room + kStreamPartialBytes;
  if (tableBytes > 0) SharedLattice<kStreamCopies>::fill(tables);
  bool waited = false;
  int before = 0;  // tasks of the products before this one
  for (int i = 0; i < p.count; i++) {
    const StreamProduct& product = p.items[i];
    const Matrix& matrix = product.matrix;
    const int tasks = (matrix.rows + 31) / 32 * product.splits;
    // Blocks take tasks of all products in turn.
    const int turn = (static_cast<int>(blockIdx.x) - before) % static_cast<int>(gridDim.x);
    const int first = turn < 0 ? turn + static_cast<int>(gridDim.x) : turn;
    before += tasks;
    if (first >= tasks) continue;
    const StagedRows rows = stagedRows(tables + tableBytes, 1, matrix.cols, usesInt8(matrix.type));
    const auto stage = [&] {
      if (!waited) {
        waitForPrevious();
        waited = true;
      }
      const float factor = p.normWeight != nullptr ? normFactor(product.x, matrix.cols, p.normEpsilon) : 1.0f;
      stageRow(product.x, matrix.cols, rows, 0, usesInt8(matrix.type), !usesInt8(matrix.type), p.normWeight, factor);
      __syncthreads();
    };
    const auto finish = [&](int task, float sum) {
      const int pair = task / product.splits, row = 32 * pair + static_cast<int>(threadIdx.x) % 32;
      if (!addShare(product.firstShare + pair * product.splits, task - pair * product.splits, product.splits, sum)) return;
      if (p.tail.streams != nullptr) finishBlock(p.tail, pair, sum);
      else if (row < matrix.rows) product.out[row] = sum;
    };
    withStream(matrix.type, [&](auto tag) {
      using Stream = typename decltype(tag)::type;
      const DenseSource source{product, rows, tables, Stream::kUnitCols};
      streamTasks<Stream>(source, first, tasks, static_cast<int>(gridDim.x), partial, stage, finish);
    });
  }
  if (!waited) waitForPrevious();
}

}  // namespace ds4::cuda
