// What fills a sequence's caches. Compressor: windows of `ratio` tokens become one entry each (see kv-rows.cuh); the
// unfinished window's raw rows are carried in float32. Bytes: kv and gate of the batch once (gate + kv + ape of a window), entries written once.
// Prefill is limited by memory; a decode step that closes no window copies one row, one that closes a window of ratio 128
// reads 512 KiB in one block (latency of 128 dependent exponentials per channel, once in 128 tokens).
#include "decode_state.cuh"
#include "kv-rows.cuh"
#include "reductions.cuh"

namespace {

// Softmax-weighted sum of one channel, term by term.
struct Pool {
  float max = -3.0e38f, total = 0, sum = 0;
  __device__ void add(float gate, float value) {
    const float next = fmaxf(max, gate);
    const float keep = expf(max - next), weight = expf(gate - next);
    total = total * keep + weight;
    sum = sum * keep + weight * value;
    max = next;
  }
};

struct Slot {
  float *kv, *gate, *previousKv, *previousGate;
  __device__ Slot(float* base, int ratio, int width, int projected)
      : kv(base),
        gate(base + static_cast<int64_t>(ratio) * projected),
        previousKv(base + 2 * static_cast<int64_t>(ratio) * projected),
        previousGate(previousKv + static_cast<int64_t>(ratio) * width) {}
};

__device__ void copyRow(float* to, const float* from, int values) {
  for (int i = threadIdx.x; i < values; i += blockDim.x) to[i] = from[i];
}

}  // namespace

/// Grid: `windowBlocks` = (ratio - 1 + rows) / ratio blocks for windows that close, the rest carries rows. A slot is kv
/// [ratio, projected], gate, then where windows overlap previousKv [ratio, width], previousGate; `slots` is two of them.
/// The valid one is named by bit `slotBit` of the state; a pass that closes a window writes the other one (the host flips
/// the bit after the pass), so a pass can be repeated. projected = width or 2 * width (overlap). Shared: width floats.
extern "C" __global__ void __launch_bounds__(512)
    compress(const DecodeState* __restrict__ state, int slotBit, const float* __restrict__ kv,
             const float* __restrict__ gate, float* slots, const float* __restrict__ ape,
             const float* __restrict__ normWeight, const float* __restrict__ frequencies, __half* entries, int parts,
             int ratio, int width, int projected, int pairs, int windowBlocks, float normEpsilon) {
  extern __shared__ __align__(16) unsigned char memory[];
  float* pooled = reinterpret_cast<float*>(memory);
  __shared__ float room[32];
  const int start = state->start, pendingRows = start % ratio;
  const int rows = pendingRows + state->count, closed = rows / ratio;
  const bool overlaps = projected > width;
  const int64_t slotValues = 2 * static_cast<int64_t>(ratio) * (projected + (overlaps ? width : 0));
  const int current = state->slots >> slotBit & 1, next = closed > 0 ? 1 - current : current;
  const Slot now(slots + current * slotValues, ratio, width, projected);
  const Slot then(slots + next * slotValues, ratio, width, projected);
  const auto rowOf = [&](const float* pending, const float* batch, int64_t index) {
    return index < pendingRows ? pending + index * projected : batch + (index - pendingRows) * projected;
  };

  if (static_cast<int>(blockIdx.x) >= windowBlocks) {
    const int firstNew = closed > 0 ? closed * ratio : pendingRows;
    const int carried = rows - firstNew, total = carried + (overlaps && closed > 0 ? ratio : 0);
    for (int item = blockIdx.x - windowBlocks; item < total; item += gridDim.x - windowBlocks) {
      if (item < carried) {
        const int64_t to = static_cast<int64_t>(firstNew + item - closed * ratio) * projected;
        copyRow(then.kv + to, rowOf(now.kv, kv, firstNew + item), projected);
        copyRow(then.gate + to, rowOf(now.gate, gate, firstNew + item), projected);
      } else {
        const int r = item - carried, at = (closed - 1) * ratio + r;
        copyRow(then.previousKv + static_cast<int64_t>(r) * width, rowOf(now.kv, kv, at), width);
        copyRow(then.previousGate + static_cast<int64_t>(r) * width, rowOf(now.gate, gate, at), width);
      }
    }
    return;
  }

  const int index = blockIdx.x;
  if (index >= closed) return;
  const int window = start / ratio + index, half = overlaps ? width : 0;
  float squares = 0;
  for (int c = threadIdx.x; c < width; c += blockDim.x) {
    Pool pool;
    if (overlaps && window > 0) {
      for (int r = 0; r < ratio; r++) {
        const int at = (index - 1) * ratio + r;
        const float* value = index > 0 ? rowOf(now.kv, kv, at) : now.previousKv + r * width;
        const float* weight = index > 0 ? rowOf(now.gate, gate, at) : now.previousGate + r * width;
        pool.add(weight[c] + ape[r * projected + c], value[c]);
      }
    }
#pragma unroll 4
    for (int r = 0; r < ratio; r++) {
      const int at = index * ratio + r;
      pool.add(rowOf(now.gate, gate, at)[half + c] + ape[r * projected + half + c], rowOf(now.kv, kv, at)[half + c]);
    }
    const float value = pool.sum / pool.total;
    pooled[c] = value;
    squares += value * value;
  }
  const float factor = 1.0f / sqrtf(blockSum(squares, room) / static_cast<float>(width) + normEpsilon);
  __half* entry = entries + static_cast<int64_t>(window) * parts * width;
  const int tail = width - 2 * pairs;
  for (int c = 2 * threadIdx.x; c < tail; c += 2 * blockDim.x) {
    const float x = pooled[c] * factor * normWeight[c], y = pooled[c + 1] * factor * normWeight[c + 1];
    ds4::cuda::storeParts(entry, width, parts, c, x, y);
  }
  for (int pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
    const int c = tail + 2 * pair;
    const float x = pooled[c] * factor * normWeight[c], y = pooled[c + 1] * factor * normWeight[c + 1];
    const double angle = __fmul_rn(static_cast<float>(window * ratio), frequencies[pair]);
    const float cosine = static_cast<float>(cos(angle)), sine = static_cast<float>(sin(angle));
    ds4::cuda::storeParts(entry, width, parts, c, x * cosine - y * sine, x * sine + y * cosine);
  }
}

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
