// Decode of one token: partial sums of the streams that the embedding left, for the first read.
//
// Bytes: 64 KiB of streams and 768 KiB of fn, once a token. Latency alone.
#include "cuda/hyper-tail.cuh"
#include "cuda/overlap.cuh"

namespace ds4::cuda {

/// Partial sums of streams that no block has written: a block per 32 columns. `tail` as of hyper-tail.cuh, without post and comb.
extern "C" __global__ void __launch_bounds__(256) hyper_start(const __grid_constant__ HyperTail tail) {
  letNextStart();
  __shared__ TailRoom room;
  const int pair = static_cast<int>(blockIdx.x);
  FnColumn fn;
  fn.load(tail, pair);
  waitForPrevious();
  const int col = 32 * pair + static_cast<int>(threadIdx.x) % 32;
  float streams[kHyperStreams];
#pragma unroll
  for (int k = 0; k < kHyperStreams; k++) streams[k] = col < tail.hidden ? __ldcg(tail.streams + k * tail.hidden + col) : 0.0f;
  writePartial(tail, pair, fn, streams, room);
}

}  // namespace ds4::cuda
