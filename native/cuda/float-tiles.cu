// Prefill of the types without kernels of their own, and embedding rows: plain float32 products of 64 weight rows by 64
// activation rows.
//
// Bytes moved: weights once per 64 activation rows. Not tuned: published files have these types in few tensors.
#include "cuda/products.cuh"
#include "cuda/rare-blocks.cuh"

namespace ds4::cuda {

constexpr int kFloatTile = 64, kFloatCols = 32;

// Weights are read as float4.
struct alignas(16) FloatShared {
  float weights[kFloatCols][kFloatTile];
  float x[kFloatCols][kFloatTile + 1];
};

// Rows 16 * firstPanel .. + 63 and activation rows first .. + 63 of the list; 256 threads with 4 x 4 sums each.
__device__ __forceinline__ void floatTile(const Matrix& matrix, int slice, int firstPanel, int endPanel, int endRow,
                                          const float* x, const RowList& rows, int first, float* out) {
  __shared__ FloatShared shared;
  const int thread = static_cast<int>(threadIdx.x), cols = matrix.cols;
  const int rowOf = 4 * (thread % 16), tokenOf = 4 * (thread / 16);
  float sums[4][4] = {};
  for (int col = 0; col < cols; col += kFloatCols) {
    for (int i = thread; i < kFloatCols * kFloatTile; i += 256) {
      const int row = i % kFloatTile, at = i / kFloatTile, panel = firstPanel + row / 16;
      shared.weights[at][row] = panel < endPanel && col + at < cols
                                    ? floatWeight(matrix.type, panelOf(matrix, slice, panel), row % 16, col + at)
                                    : 0.0f;
      const int token = first + i / kFloatCols, xAt = i % kFloatCols;
      shared.x[xAt][i / kFloatCols] = token < rows.count && col + xAt < cols
                                          ? x[static_cast<int64_t>(rows.at(token)) * cols + col + xAt]
                                          : 0.0f;
    }
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kFloatCols; k++) {
      const float4 w = *reinterpret_cast<const float4*>(&shared.weights[k][rowOf]);
#pragma unroll
      for (int t = 0; t < 4; t++) {
        const float value = shared.x[k][tokenOf + t];
        sums[t][0] += w.x * value;
        sums[t][1] += w.y * value;
        sums[t][2] += w.z * value;
        sums[t][3] += w.w * value;
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int t = 0; t < 4; t++) {
    const int token = first + tokenOf + t;
#pragma unroll
    for (int r = 0; r < 4; r++) {
      const int row = 16 * firstPanel + rowOf + r;
      if (token < rows.count && row < endRow) out[static_cast<int64_t>(token) * matrix.rows + row] = sums[t][r];
    }
  }
}

/// Grid: (sum of 64-row tiles of all products, 64-token tiles).
extern "C" __global__ void __launch_bounds__(256) multiply_float_tiles(const __grid_constant__ Products products,
                                                                       const Input input, int tokens) {
  int tile = static_cast<int>(blockIdx.x), item = 0;
  while (item + 1 < products.count && tile >= (products.items[item].matrix.rows + 63) / 64) {
    tile -= (products.items[item].matrix.rows + 63) / 64;
    item++;
  }
  const Product& product = products.items[item];
  floatTile(product.matrix, 0, 4 * tile, (product.matrix.rows + 15) / 16, product.matrix.rows, input.x,
            {nullptr, 0, 1, tokens}, kFloatTile * static_cast<int>(blockIdx.y), product.out);
}

/// Grid: (64-row tiles of a group, 64-token tiles, groups).
extern "C" __global__ void __launch_bounds__(256)
    multiply_groups_float_tiles(const __grid_constant__ Product product, const Input input, int tokens, int groups) {
  const int group = static_cast<int>(blockIdx.z), rank = product.matrix.rows / groups;
  const int firstPanel = group * rank / 16, endPanel = firstPanel + (rank + 15) / 16;
  floatTile(product.matrix, 0, firstPanel + 4 * static_cast<int>(blockIdx.x), endPanel, (group + 1) * rank, input.x,
            {nullptr, group, groups, tokens}, kFloatTile * static_cast<int>(blockIdx.y), product.out);
}

/// Grid: (64-row tiles, experts). Only the routed rows.
extern "C" __global__ void __launch_bounds__(256) expert_products_float_tiles(const __grid_constant__ ExpertProducts e) {
  if (static_cast<int>(blockIdx.y) >= *e.routing.activeCount) return;
  const int expert = e.routing.active[blockIdx.y];
  const int begin = e.routing.begin[expert], count = e.routing.begin[expert + 1] - begin;
  const RowList rows{e.gather != 0 ? e.routing.rowToken + begin : nullptr, begin, 1, count};
  for (int first = 0; first < count; first += kFloatTile) {
    floatTile(e.matrix, expert, 4 * static_cast<int>(blockIdx.x), (e.matrix.rows + 15) / 16, e.matrix.rows, e.input.x,
              rows, first, e.out + static_cast<int64_t>(begin) * e.matrix.rows);
  }
}

/// streams [tokens, copies, cols]: each copy the token's row. Grid: (columns / 256, tokens). An id outside gives NaN.
extern "C" __global__ void embed_rows(const Matrix matrix, const int* ids, int copies, float* streams) {
  const int col = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), token = static_cast<int>(blockIdx.y);
  if (col >= matrix.cols) return;
  const int id = ids[token];
  float value = __int_as_float(0x7fc00000);
  if (id >= 0 && id < matrix.rows) {
    const uint8_t* panel = panelOf(matrix, 0, id / 16);
    value = usesInt8(matrix.type) ? intWeight(matrix.type, panel, id % 16, col)
                                  : floatWeight(matrix.type, panel, id % 16, col);
  }
  float* to = streams + static_cast<int64_t>(token) * copies * matrix.cols + col;
  for (int copy = 0; copy < copies; copy++) to[static_cast<int64_t>(copy) * matrix.cols] = value;
}

}  // namespace ds4::cuda
