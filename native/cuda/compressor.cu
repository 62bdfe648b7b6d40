// What fills a sequence's caches: the compressor's entries (compress.cuh) and the rows of the window's ring.
#include "cuda/compress.cuh"

namespace ds4::cuda {

/// Grid: c.blocks. Threads: width / 2 or more.
extern "C" __global__ void __launch_bounds__(kCompressThreads) compress(const __grid_constant__ Compress c) {
  letNextStart();
  __shared__ float room[32];
  compressBlock(c, static_cast<int>(blockIdx.x), room);
}

}  // namespace ds4::cuda

/// A block per row of the sequence: kv [count, dim] float32 to its place (position % ringRows) in ring
/// [ringRows, parts * dim].
extern "C" __global__ void __launch_bounds__(256)
    store_rows(const DecodeState* __restrict__ state, const float* __restrict__ kv, __half* ring, int parts, int ringRows,
               int dim) {
  const int row = blockIdx.x;
  if (row >= state->count) return;
  const float2* from = reinterpret_cast<const float2*>(kv + static_cast<int64_t>(row) * dim);
  __half* to = ring + static_cast<int64_t>((state->start + row) % ringRows) * parts * dim;
  for (int i = threadIdx.x; i < dim / 2; i += blockDim.x) {
    ds4::cuda::storeParts(to, dim, parts, 2 * i, from[i].x, from[i].y);
  }
}
