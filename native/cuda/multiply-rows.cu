// Decode products of 1 to 16 activation rows with up to eight matrices of one input in one launch.
//
// Bytes moved: the packed weights once per 8 activation rows, activations from the second-level cache. A block takes 32
// weight rows; its warps split the columns, so that matrices of few rows still keep many loads in flight.
#include "cuda/products.cuh"
#include "cuda/rows-product.cuh"

namespace ds4::cuda {

// Where several blocks share a pair of panels: their sums, and how many have arrived. Launches of one stream follow each
// other, and the count is zero again after each.
constexpr int kMaxSplitTasks = 1024;
__device__ float splitSums[kMaxSplitTasks][kRowTokens * 32];
__device__ unsigned int splitArrivals[kMaxSplitTasks];

struct DenseTarget {
  float* out;
  int64_t stride;
  int row, rows;  // of the matrix: first of the pair, end

  __device__ __forceinline__ void put(int firstToken, int i, float sum) const {
    if (row + i % 32 < rows) out[(firstToken + i / 32) * stride + row + i % 32] = sum;
  }
};

__device__ __forceinline__ void storeSums(const DenseTarget& target, const RowShared& shared, int firstToken, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < 32 * count; i += static_cast<int>(blockDim.x)) {
    target.put(firstToken, i, rowSum(shared, i / 32, i % 32));
  }
  __syncthreads();
}

// The block that arrives last adds up, always in the order of the columns. `task`: of this block; those of one pair follow
// each other.
__device__ __forceinline__ void shareSums(const RowJob& job, const DenseTarget& target, const RowShared& shared,
                                          int firstToken, int count, int task) {
  __shared__ bool last;
  const int firstTask = task - job.split;
  for (int i = static_cast<int>(threadIdx.x); i < 32 * count; i += static_cast<int>(blockDim.x)) {
    splitSums[task][i] = rowSum(shared, i / 32, i % 32);
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicInc(&splitArrivals[firstTask], static_cast<unsigned int>(job.splits - 1)) ==
           static_cast<unsigned int>(job.splits - 1);
    __threadfence();
  }
  __syncthreads();
  if (last) {
    for (int i = static_cast<int>(threadIdx.x); i < 32 * count; i += static_cast<int>(blockDim.x)) {
      float sum = 0;
      for (int split = 0; split < job.splits; split++) sum += __ldcg(&splitSums[firstTask + split][i]);
      target.put(firstToken, i, sum);
    }
  }
  __syncthreads();
}

/// `splits` > 1: at most 8 rows, and every block has one task (grid = tasks).
template <int Rows>
__device__ __forceinline__ void multiplyRows(const Products& products, const Input& input, int tokens, int splits) {
  bool needsLattice = false;
  for (int i = 0; i < products.count; i++) needsLattice |= products.items[i].matrix.type == kIq2Xxs;
  const RowShared shared = rowShared(needsLattice);
  for (int task = static_cast<int>(blockIdx.x);; task += static_cast<int>(gridDim.x)) {
    int pair = task / splits, item = 0;
    while (item < products.count && pair >= pairsOf(products.items[item].matrix.rows)) {
      pair -= pairsOf(products.items[item].matrix.rows);
      item++;
    }
    if (item == products.count) break;
    const Matrix& matrix = products.items[item].matrix;
    RowJob job{matrix.type, matrix.cols, {}, input, {nullptr, 0, 1, tokens}, task % splits, splits};
    pairPanels(matrix, 0, 2 * pair, (matrix.rows + 15) / 16 - 2 * pair, job.panels);
    const DenseTarget target{products.items[item].out, matrix.rows, 32 * pair, matrix.rows};
    for (int first = 0; first < tokens; first += kRowTokens) {
      const int count = min(kRowTokens, tokens - first);
      rowsProduct<Rows>(job, first, count, shared);
      if (splits == 1) storeSums(target, shared, first, count);
      else shareSums(job, target, shared, first, count, task);
    }
  }
}

extern "C" __global__ void __launch_bounds__(512)
    multiply_row(const __grid_constant__ Products products, const Input input, int splits) {
  multiplyRows<1>(products, input, 1, splits);
}

extern "C" __global__ void __launch_bounds__(512)
    multiply_rows(const __grid_constant__ Products products, const Input input, int tokens, int splits) {
  multiplyRows<2>(products, input, tokens, splits);
}

// Group g of matrix rows reads the input rows token * groups + g: out [tokens, matrix.rows].
template <int Rows>
__device__ __forceinline__ void multiplyGroupRows(const Product& product, const Input& input, int tokens, int groups) {
  const Matrix& matrix = product.matrix;
  const RowShared shared = rowShared(matrix.type == kIq2Xxs);
  const int rank = matrix.rows / groups, pairs = pairsOf(rank);
  for (int task = static_cast<int>(blockIdx.x); task < groups * pairs; task += static_cast<int>(gridDim.x)) {
    const int group = task / pairs, pair = task % pairs;
    RowJob job{matrix.type, matrix.cols, {}, input, {nullptr, group, groups, tokens}};
    pairPanels(matrix, 0, group * rank / 16 + 2 * pair, (rank + 15) / 16 - 2 * pair, job.panels);
    const int row = group * rank + 32 * pair;
    const DenseTarget target{product.out, matrix.rows, row, (group + 1) * rank};
    for (int first = 0; first < tokens; first += kRowTokens) {
      const int count = min(kRowTokens, tokens - first);
      rowsProduct<Rows>(job, first, count, shared);
      storeSums(target, shared, first, count);
    }
  }
}

extern "C" __global__ void __launch_bounds__(512)
    multiply_groups_row(const __grid_constant__ Product product, const Input input, int groups) {
  multiplyGroupRows<1>(product, input, 1, groups);
}

extern "C" __global__ void __launch_bounds__(512)
    multiply_groups_rows(const __grid_constant__ Product product, const Input input, int tokens, int groups) {
  multiplyGroupRows<2>(product, input, tokens, groups);
}

}  // namespace ds4::cuda
