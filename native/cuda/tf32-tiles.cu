// Prefill kernels of F16, BF16, MXFP4 and F32: dense matrices, row groups, experts.
//
// Bytes moved: weights once per 64 activation rows, activations once per 128 weight rows (32 where a matrix has no more).
// Two (F32: three) tensor instructions per product of 16 x 8 x 8.
#include "cuda/tf32-tiles.cuh"

namespace ds4::cuda {

/// Grid: (sum of 128-row tiles of all products, 64-token tiles).
extern "C" __global__ void __launch_bounds__(128) multiply_tf32_tiles(const __grid_constant__ Products products,
                                                                      const Input input, int tokens) {
  int tile = static_cast<int>(blockIdx.x), item = 0;
  while (item + 1 < products.count && tile >= (products.items[item].matrix.rows + 127) / 128) {
    tile -= (products.items[item].matrix.rows + 127) / 128;
    item++;
  }
  const Product& product = products.items[item];
  plainTile<false>(product.matrix, 0, 8 * tile, (product.matrix.rows + 15) / 16, product.matrix.rows, input.x,
                   {nullptr, 0, 1, tokens}, kPlainTokens * static_cast<int>(blockIdx.y), product.out);
}

/// The same for one matrix of few rows. Grid: (32-row tiles, 64-token tiles).
extern "C" __global__ void __launch_bounds__(128) multiply_tf32_narrow(const __grid_constant__ Product product,
                                                                       const Input input, int tokens) {
  plainTile<true>(product.matrix, 0, 2 * static_cast<int>(blockIdx.x), (product.matrix.rows + 15) / 16,
                  product.matrix.rows, input.x, {nullptr, 0, 1, tokens}, kPlainTokens * static_cast<int>(blockIdx.y),
                  product.out);
}

/// Grid: (128-row tiles of a group, 64-token tiles, groups).
extern "C" __global__ void __launch_bounds__(128)
    multiply_groups_tf32_tiles(const __grid_constant__ Product product, const Input input, int tokens, int groups) {
  const int group = static_cast<int>(blockIdx.z), rank = product.matrix.rows / groups;
  const int firstPanel = group * rank / 16, endPanel = firstPanel + (rank + 15) / 16;
  plainTile<false>(product.matrix, 0, firstPanel + 8 * static_cast<int>(blockIdx.x), endPanel, (group + 1) * rank,
                   input.x, {nullptr, group, groups, tokens}, kPlainTokens * static_cast<int>(blockIdx.y), product.out);
}

/// Grid: (128-row tiles, experts). Only the routed rows.
extern "C" __global__ void __launch_bounds__(128) expert_products_tf32_tiles(const __grid_constant__ ExpertProducts e) {
  if (static_cast<int>(blockIdx.y) >= *e.routing.activeCount) return;
  const int expert = e.routing.active[blockIdx.y];
  const int begin = e.routing.begin[expert], count = e.routing.begin[expert + 1] - begin;
  const RowList rows{e.gather != 0 ? e.routing.rowToken + begin : nullptr, begin, 1, count};
  for (int first = 0; first < count; first += kPlainTokens) {
    plainTile<false>(e.matrix, expert, 8 * static_cast<int>(blockIdx.x), (e.matrix.rows + 15) / 16, e.matrix.rows,
                     e.input.x, rows, first, e.out + static_cast<int64_t>(begin) * e.matrix.rows);
  }
}

}  // namespace ds4::cuda
