// What fills a sequence's entries: windows of `ratio` tokens become one entry each (see kv-rows.cuh); the unfinished
// window's raw rows are carried in float32. Blocks of a kernel of its own or beside other work (decode-rows.cu).
//
// Bytes: kv and gate of the batch once (gate + kv + ape of a window), entries written once. Prefill is limited by memory. A
// decode step that closes no window copies one row; one that closes a window has pooled all of its rows but the last
// before it waits for the kernels ahead, so that even the 512 KiB of ratio 128 cost little but that row's latency.
#pragma once
#include "cuda/intrinsics.cuh"
#include "cuda/overlap.cuh"
#include "decode_state.cuh"
#include "kv-rows.cuh"
#include "reductions.cuh"

namespace ds4::cuda {

constexpr int kCompressThreads = 256;  // two values of a row each: rows of up to 512

/// A slot is kv [ratio, projected], gate, then where windows overlap previousKv [ratio, width], previousGate; `slots` is two
/// of them. The valid one is named by bit `slotBit` of the state; a pass that closes a window writes the other one (the host
/// flips the bit after the pass), so a pass can be repeated. projected = width or 2 * width (overlap). kv, gate [count,
/// projected]; ape [ratio, projected]. Of `blocks` the first `windowBlocks` = (ratio - 1 + rows) / ratio are for windows that
/// close, the rest carry rows; no block: no work.
struct Compress {
  const DecodeState* state;
  const float *kv, *gate;
  float* slots;
  const float *ape, *normWeight, *frequencies;
  __half* entries;
  int slotBit, parts, ratio, width, projected, pairs, windowBlocks, blocks;
  float normEpsilon;
  int padding;
};

/// Softmax-weighted sum of one channel, term by term.
struct Pool {
  float max = -3.0e38f, total = 0, sum = 0;
  __device__ __forceinline__ void add(float gate, float value) {
    const float next = fmaxf(max, gate);
    const float keep = expf(max - next), weight = expf(gate - next);
    total = total * keep + weight;
    sum = sum * keep + weight * value;
    max = next;
  }
};

/// The two slots, and where the pass stands in them.
struct CompressWork {
  struct Slot {
    float *kv, *gate, *previousKv, *previousGate;
  };
  Slot now, then;
  int start, pendingRows, rows, closed;
  bool overlaps;

  __device__ __forceinline__ explicit CompressWork(const Compress& c) {
    start = c.state->start;
    pendingRows = start % c.ratio;
    rows = pendingRows + c.state->count;
    closed = rows / c.ratio;
    overlaps = c.projected > c.width;
    const int current = c.state->slots >> c.slotBit & 1;
    now = slotOf(c, current);
    then = slotOf(c, closed > 0 ? 1 - current : current);
  }

  __device__ __forceinline__ Slot slotOf(const Compress& c, int index) const {
    const int64_t raw = static_cast<int64_t>(c.ratio) * c.projected, previous = static_cast<int64_t>(c.ratio) * c.width;
    float* base = c.slots + index * (2 * raw + (overlaps ? 2 * previous : 0));
    return {base, base + raw, base + 2 * raw, base + 2 * raw + previous};
  }

  /// Row `index`, counted from the first of the unfinished window.
  __device__ __forceinline__ const float* rowOf(const Compress& c, const float* pending, const float* batch, int64_t index) const {
    return index < pendingRows ? pending + index * c.projected : batch + (index - pendingRows) * c.projected;
  }
};

__device__ __forceinline__ void copyRow(float* to, const float* from, int values) {
  for (int i = static_cast<int>(threadIdx.x); i < values; i += static_cast<int>(blockDim.x)) to[i] = from[i];
}

/// Rows of the unfinished window, and of the one before it, to the slot that is valid next.
__device__ __forceinline__ void carryRows(const Compress& c, const CompressWork& w, int block) {
  const int firstNew = w.closed > 0 ? w.closed * c.ratio : w.pendingRows;
  const int carried = w.rows - firstNew, total = carried + (w.overlaps && w.closed > 0 ? c.ratio : 0);
  for (int item = block - c.windowBlocks; item < total; item += c.blocks - c.windowBlocks) {
    if (item < carried) {
      const int64_t to = static_cast<int64_t>(firstNew + item - w.closed * c.ratio) * c.projected;
      copyRow(w.then.kv + to, w.rowOf(c, w.now.kv, c.kv, firstNew + item), c.projected);
      copyRow(w.then.gate + to, w.rowOf(c, w.now.gate, c.gate, firstNew + item), c.projected);
    } else {
      const int r = item - carried, at = (w.closed - 1) * c.ratio + r;
      copyRow(w.then.previousKv + static_cast<int64_t>(r) * c.width, w.rowOf(c, w.now.kv, c.kv, at), c.width);
      copyRow(w.then.previousGate + static_cast<int64_t>(r) * c.width, w.rowOf(c, w.now.gate, c.gate, at), c.width);
    }
  }
}

/// Two neighbouring channels of the `index`-th window that closes: the softmax over its rows, and over those of the window
/// before it where windows overlap. Rows come in the order in which they were made.
struct WindowTerms {
  const Compress& c;
  const CompressWork& w;
  int index, before, channel;
  Pool left, right;

  __device__ __forceinline__ WindowTerms(const Compress& compress, const CompressWork& work, int window, int firstChannel)
      : c(compress), w(work), index(window), channel(firstChannel) {
    before = w.overlaps && w.start / c.ratio + index > 0 ? c.ratio : 0;
  }

  /// How many of the terms were there before the pass.
  __device__ __forceinline__ int older() const {
    return index == 0 ? before + w.pendingRows : index == 1 ? min(before, w.pendingRows) : 0;
  }

  __device__ __forceinline__ void add(int first, int end) {
    constexpr int kAhead = 4;
    for (; first < end; first += kAhead) {
      float2 values[kAhead], gates[kAhead], shifts[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; i++) {
        const bool own = first + i >= before, carried = !own && index == 0;
        const int r = min(first + i, end - 1) - (own ? before : 0), at = (own ? index : index - 1) * c.ratio + r;
        const int col = channel + (own && w.overlaps ? c.width : 0);
        const float* value = carried ? w.now.previousKv + r * c.width : w.rowOf(c, w.now.kv, c.kv, at);
        const float* gate = carried ? w.now.previousGate + r * c.width : w.rowOf(c, w.now.gate, c.gate, at);
        values[i] = *reinterpret_cast<const float2*>(value + col);
        gates[i] = *reinterpret_cast<const float2*>(gate + col);
        shifts[i] = loadConstant<float2>(c.ape + r * c.projected + col);
      }
#pragma unroll
      for (int i = 0; i < kAhead; i++) {
        if (first + i >= end) break;
        left.add(gates[i].x + shifts[i].x, values[i].x);
        right.add(gates[i].y + shifts[i].y, values[i].y);
      }
    }
  }
};

/// One entry: pooled, normed, its last 2 * pairs values rotated by the position of the window's first token.
__device__ __forceinline__ void closeWindow(const Compress& c, const CompressWork& w, int index, float* room) {
  const int window = w.start / c.ratio + index, channel = 2 * static_cast<int>(threadIdx.x);
  const int tail = c.width - 2 * c.pairs;
  const bool inside = channel < c.width, turns = inside && channel >= tail;
  WindowTerms terms(c, w, index, channel);
  const int older = terms.older();
  float2 weight = make_float2(0, 0);
  float cosine = 1, sine = 0;
  if (inside) {
    weight = loadConstant<float2>(c.normWeight + channel);
    terms.add(0, older);
  }
  if (turns) {
    const double angle = __fmul_rn(static_cast<float>(window * c.ratio), c.frequencies[(channel - tail) / 2]);
    cosine = static_cast<float>(cos(angle));
    sine = static_cast<float>(sin(angle));
  }
  waitForPrevious();
  float x = 0, y = 0;
  if (inside) {
    terms.add(older, terms.before + c.ratio);
    x = terms.left.sum / terms.left.total;
    y = terms.right.sum / terms.right.total;
  }
  const float factor = 1.0f / sqrtf(blockSum(x * x + y * y, room) / static_cast<float>(c.width) + c.normEpsilon);
  if (!inside) return;
  x *= factor * weight.x;
  y *= factor * weight.y;
  const float turned = x * cosine - y * sine;
  y = turns ? x * sine + y * cosine : y;
  x = turns ? turned : x;
  storeParts(c.entries + static_cast<int64_t>(window) * c.parts * c.width, c.width, c.parts, channel, x, y);
}

/// What block `block` of c.blocks does; width / 2 threads or more, a multiple of 32. `room` [32] is shared. Every thread waits for the kernels
/// before this one.
__device__ __forceinline__ void compressBlock(const Compress& c, int block, float* room) {
  const CompressWork work(c);
  if (block < c.windowBlocks && block < work.closed) {
    closeWindow(c, work, block, room);
    return;
  }
  waitForPrevious();
  if (block >= c.windowBlocks) carryRows(c, work, block);
}

}  // namespace ds4::cuda
