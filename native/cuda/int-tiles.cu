// Prefill kernels of the int8 types: dense matrices, row groups, experts.
//
// Bytes moved: weights once per 64 activation rows (after the first time mostly from the second-level cache), activations
// once per 128 weight rows. Arithmetic per product of 16 x 8 x 32: 1 tensor instruction and 12 to 20 others for scales and mins, which
// are the limit.
#include "cuda/int-tiles.cuh"

namespace ds4::cuda {

struct WarpPanels {
  int panel;  // of the matrix, for this lane; the last one where there is none
  bool real;
};

__device__ __forceinline__ WarpPanels warpPanels(int firstPanel, int endPanel, const Lane& lane) {
  const int panel = firstPanel + 2 * lane.warp + lane.panel;
  return {min(panel, endPanel - 1), panel < endPanel};
}

// 128 rows from `firstPanel` on, tokens [first, first + 64) of the list.
__device__ __forceinline__ void denseTile(const Matrix& matrix, int slice, int firstPanel, int endPanel, int endRow,
                                          const Input& input, const RowList& rows, int first, float* out) {
  const Lane lane = ownLane();
  const WarpPanels own = warpPanels(firstPanel, endPanel, lane);
  float sums[kTileTiles][8];
  tileProductOf(matrix.type, panelOf(matrix, slice, own.panel), matrix.cols, input, rows, first, sums);
  if (own.real) {
    storeTile(sums, out + static_cast<int64_t>(first) * matrix.rows, matrix.rows, 16 * own.panel, endRow,
              rows.count - first, lane);
  }
}

/// Grid: (sum of 128-row tiles of all products, 64-token tiles).
extern "C" __global__ void __launch_bounds__(128) multiply_tiles(const __grid_constant__ Products products,
                                                                 const Input input, int tokens) {
  int tile = static_cast<int>(blockIdx.x), item = 0;
  while (item + 1 < products.count && tile >= (products.items[item].matrix.rows + 127) / 128) {
    tile -= (products.items[item].matrix.rows + 127) / 128;
    item++;
  }
  const Product& product = products.items[item];
  prepareTiles(product.matrix.type);
  denseTile(product.matrix, 0, 8 * tile, (product.matrix.rows + 15) / 16, product.matrix.rows, input,
            {nullptr, 0, 1, tokens}, kTileTokens * static_cast<int>(blockIdx.y), product.out);
}

/// Grid: (128-row tiles of a group, 64-token tiles, groups).
extern "C" __global__ void __launch_bounds__(128) multiply_groups_tiles(const __grid_constant__ Product product,
                                                                        const Input input, int tokens, int groups) {
  const int group = static_cast<int>(blockIdx.z), rank = product.matrix.rows / groups;
  const int firstPanel = group * rank / 16, endPanel = firstPanel + (rank + 15) / 16;
  prepareTiles(product.matrix.type);
  denseTile(product.matrix, 0, firstPanel + 8 * static_cast<int>(blockIdx.x), endPanel, (group + 1) * rank, input,
            {nullptr, group, groups, tokens}, kTileTokens * static_cast<int>(blockIdx.y), product.out);
}

/// Grid: (128-row tiles, experts). Only `matrix` (not `shared`): the routed rows.
extern "C" __global__ void __launch_bounds__(128) expert_products_tiles(const __grid_constant__ ExpertProducts e) {
  if (static_cast<int>(blockIdx.y) >= *e.routing.activeCount) return;
  const int expert = e.routing.active[blockIdx.y];
  const int begin = e.routing.begin[expert], count = e.routing.begin[expert + 1] - begin;
  const RowList rows{e.gather != 0 ? e.routing.rowToken + begin : nullptr, begin, 1, count};
  prepareTiles(e.matrix.type);
  for (int first = 0; first < count; first += kTileTokens) {
    denseTile(e.matrix, expert, 8 * static_cast<int>(blockIdx.x), (e.matrix.rows + 15) / 16, e.matrix.rows, e.input, rows,
              first, e.out + static_cast<int64_t>(begin) * e.matrix.rows);
  }
}

// Gate's panel in lanes 0-15, up's in 16-31. Lanes swap one of their two activation rows each: then every lane has gate and
// up of the same rows, the lower lanes for the first activation row, the upper ones for the second.
__device__ __forceinline__ void storeSwiglu(const float (&sums)[kTileTiles][8], float* h, int inner, int panel,
                                            int tokens, float limit, const Lane& lane) {
#pragma unroll
  for (int tile = 0; tile < kTileTiles; tile++) {
    float values[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float kept = lane.panel == 0 ? sums[tile][2 * i] : sums[tile][2 * i + 1];
      const float given = lane.panel == 0 ? sums[tile][2 * i + 1] : sums[tile][2 * i];
      const float taken = __shfl_xor_sync(0xffffffffu, given, 16);
      values[i] = lane.panel == 0 ? swiglu(kept, taken, limit) : swiglu(taken, kept, limit);
    }
    const int token = 8 * tile + 2 * lane.pair + lane.panel;
    if (token < tokens) {
      *reinterpret_cast<float4*>(h + static_cast<int64_t>(token) * inner + 16 * panel + 4 * lane.quad) =
          make_float4(values[0], values[1], values[2], values[3]);
    }
  }
}

__device__ __forceinline__ void upTile(const Matrix& gate, const Matrix& up, int slice, const Input& input,
                                       const RowList& rows, int first, float limit, float* h) {
  const Lane lane = ownLane();
  const int panels = gate.rows / 16, panel = kTileWarps * static_cast<int>(blockIdx.x) + lane.warp;
  const int own = min(panel, panels - 1);
  float sums[kTileTiles][8];
  tileProductOf(gate.type, panelOf(lane.panel == 0 ? gate : up, slice, own), gate.cols, input, rows, first, sums);
  if (panel < panels) {
    storeSwiglu(sums, h + static_cast<int64_t>(first) * gate.rows, gate.rows, panel, rows.count - first, limit, lane);
  }
}

/// Grid: (64-row tiles of the experts' inner size, experts).
extern "C" __global__ void __launch_bounds__(128) experts_up_tiles(const __grid_constant__ ExpertsUp e) {
  if (static_cast<int>(blockIdx.y) >= *e.routing.activeCount) return;
  const int expert = e.routing.active[blockIdx.y];
  const int begin = e.routing.begin[expert], count = e.routing.begin[expert + 1] - begin;
  prepareTiles(e.gate.type);
  for (int first = 0; first < count; first += kTileTokens) {
    upTile(e.gate, e.up, expert, e.input, {e.routing.rowToken + begin, 0, 0, count}, first, e.limit,
           e.h + static_cast<int64_t>(begin) * e.gate.rows);
  }
}

/// Grid: (64-row tiles of the shared inner size, 64-token tiles).
extern "C" __global__ void __launch_bounds__(128) shared_up_tiles(const __grid_constant__ ExpertsUp e, int tokens) {
  prepareTiles(e.sharedGate.type);
  upTile(e.sharedGate, e.sharedUp, 0, e.input, {nullptr, 0, 1, tokens}, kTileTokens * static_cast<int>(blockIdx.y),
         e.sharedLimit, e.sharedH);
}

}  // namespace ds4::cuda
