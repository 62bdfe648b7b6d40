// Decode products of 1 to 16 activation rows with up to eight matrices of one input in one launch.
//
// Bytes moved: the packed weights once per 8 activation rows, activations from the second-level cache. A block takes 32
// weight rows; its warps split the columns, so that matrices of few rows still keep many loads in flight.
#include "cuda/products.cuh"
#include "cuda/rows-product.cuh"

namespace ds4::cuda {

struct DenseTarget {
  float* out;
  int64_t stride;
  int row, rows;  // of the matrix: first of the pair, end

  __device__ __forceinline__ void store(const RowShared& shared, int firstToken, int count) const {
    for (int i = static_cast<int>(threadIdx.x); i < 32 * count; i += static_cast<int>(blockDim.x)) {
      const int token = i / 32, at = row + i % 32;
      if (at < rows) out[(firstToken + token) * stride + at] = rowSum(shared, token, i % 32);
    }
    __syncthreads();
  }
};

template <int Rows>
__device__ __forceinline__ void runJob(const RowJob& job, const DenseTarget& target, const RowShared& shared) {
  for (int first = 0; first < job.rows.count; first += kRowTokens) {
    const int count = min(kRowTokens, job.rows.count - first);
    rowsProduct<Rows>(job, first, count, shared);
    target.store(shared, first, count);
  }
}

template <int Rows>
__device__ __forceinline__ void multiplyRows(const Products& products, const Input& input, int tokens) {
  bool needsLattice = false;
  for (int i = 0; i < products.count; i++) needsLattice |= products.items[i].matrix.type == kIq2Xxs;
  const RowShared shared = rowShared(needsLattice);
  for (int task = static_cast<int>(blockIdx.x);; task += static_cast<int>(gridDim.x)) {
    int pair = task, item = 0;
    while (item < products.count && pair >= pairsOf(products.items[item].matrix.rows)) {
      pair -= pairsOf(products.items[item].matrix.rows);
      item++;
    }
    if (item == products.count) break;
    const Matrix& matrix = products.items[item].matrix;
    RowJob job{matrix.type, matrix.cols, {}, input, {nullptr, 0, 1, tokens}};
    pairPanels(matrix, 0, 2 * pair, (matrix.rows + 15) / 16 - 2 * pair, job.panels);
    runJob<Rows>(job, {products.items[item].out, matrix.rows, 32 * pair, matrix.rows}, shared);
  }
}

extern "C" __global__ void __launch_bounds__(512) multiply_row(const __grid_constant__ Products products, const Input input) {
  multiplyRows<1>(products, input, 1);
}

extern "C" __global__ void __launch_bounds__(512) multiply_rows(const __grid_constant__ Products products, const Input input,
                                                  int tokens) {
  multiplyRows<2>(products, input, tokens);
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
    runJob<Rows>(job, {product.out, matrix.rows, row, (group + 1) * rank}, shared);
  }
}

extern "C" __global__ void __launch_bounds__(512) multiply_groups_row(const __grid_constant__ Product product, const Input input,
                                                        int groups) {
  multiplyGroupRows<1>(product, input, 1, groups);
}

extern "C" __global__ void __launch_bounds__(512) multiply_groups_rows(const __grid_constant__ Product product, const Input input,
                                                         int tokens, int groups) {
  multiplyGroupRows<2>(product, input, tokens, groups);
}

}  // namespace ds4::cuda
