// Decode of one token: the steps of a layer between its attention and the next layer's, in one launch whose blocks stay.
//
// Every step streams weights (stream-rows.cuh) and needs all of the step before. Blocks meet between steps; before they meet, their
// stages already fill with the weights of the step to come, so that the memory goes on while the last blocks end, while all meet
// and while inputs are staged. Launches of their own would each be read, placed and ended anew, some microseconds a time.
//
// Bytes moved: the packed weights once; inputs from the second-level cache, once per block and step. On an H200 a layer of ds4f-q2 takes
// about 115 us here (136 less some 20 of attention) for 205 MB, 1.8 TB/s, 42 % of the copy. Of that, blocks wait for each other's last
// tasks and meet for a third, a join takes 4 us twice, the choice of experts 2, code that the instruction cache had lost a tenth
// (bench-results/2026-12-02-cuda-h200-types.md).
#include "cuda/decode-experts.cuh"
#include "cuda/decode-products.cuh"
#include "cuda/decode-route.cuh"

namespace ds4::cuda {

constexpr int kMostChainSteps = 8, kMostChainProducts = 4;

enum ChainKind : int { kChainProducts, kChainRoute, kChainUp, kChainDown };

/// What a step does: `cut` is its perBlock, routerBlocks or expertBlocks.
struct ChainStep {
  int kind, cut;
  int item;  // of the products
  StreamRoom room;
};

/// Steps of one layer: what each of them reads.
struct DecodeChain {
  ChainStep steps[kMostChainSteps];
  StreamProducts products[kMostChainProducts];
  DecodeRoute route;
  DecodeUp up;
  DecodeDown down;
  int count, padding;
};

static_assert(sizeof(DecodeChain) % 16 == 0);

/// What types a kernel is compiled for, see StreamType: of attention and the shared expert; of the router and the compressors (beside
/// those); of the experts' gate and up; of their down.
template <int Dense, int Half, int Shared, int Up, int Down>
struct ChainTypes {
  static constexpr int kDense = Dense, kHalf = Half, kShared = Shared, kUp = Up, kDown = Down;
};

template <class Types>
__device__ __forceinline__ void runChain(const DecodeChain& given) {
  letNextStart();
  // Read as parameters, every line of them would be waited for by itself, by all multiprocessors at once: 20 us a layer.
  __shared__ __align__(16) DecodeChain chain;
  const uint4* from = opaque(reinterpret_cast<const uint4*>(&given));
  constexpr int kPieces = static_cast<int>(sizeof(DecodeChain) / 16), kPasses = (kPieces + kStreamThreads - 1) / kStreamThreads;
  uint4 pieces[kPasses];
#pragma unroll
  for (int i = 0; i < kPasses; i++) {
    const int at = i * kStreamThreads + static_cast<int>(threadIdx.x);
    pieces[i] = from[min(at, kPieces - 1)];
  }
#pragma unroll
  for (int i = 0; i < kPasses; i++) {
    const int at = i * kStreamThreads + static_cast<int>(threadIdx.x);
    if (at < kPieces) reinterpret_cast<uint4*>(&chain)[at] = pieces[i];
  }
  __shared__ RingRoom room;
  __shared__ FinishedPairs finished;
  __shared__ ChosenExperts chosen;
  Ring ring(room);
  if (threadIdx.x == 0) finished.count = 0;
  __syncthreads();
  GridBarrier barrier;
#pragma unroll 1
  for (int i = 0; i < chain.count; i++) {
    const ChainStep& step = chain.steps[i];
    if (i > 0) barrier.arrive();
    ChainBlock own{ring, barrier, finished, chosen, step.room};
    ring.lay(own.room.ring(), own.room.stageBytes, own.room.stages);
    switch (step.kind) {
      case kChainProducts: streamProducts<Types>(chain.products[step.item], own, step.cut); break;
      case kChainRoute: routeToken<Types::kHalf, Types::kShared>(chain.route, own, step.cut); break;
      case kChainUp: expertsUp<Types::kUp>(chain.up, chain.route, own, step.cut); break;
      default: expertsDown<Types::kDown, Types::kShared>(chain.down, own, step.cut); break;
    }
  }
}

/// 256 threads, blocks that are all resident at once; the shared memory of the step that needs most. Names end in the types of the
/// experts' gate and up, and of their down: those kernels are for Q8_0 with F16 router, compressors and indexer, as files are published.
extern "C" __global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    decode_chain(const __grid_constant__ DecodeChain given) {
  runChain<ChainTypes<kAnyType, kAnyType, kAnyInt, kAnyInt, kAnyInt>>(given);
}
extern "C" __global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    decode_chain_iq2xxs_q2k(const __grid_constant__ DecodeChain given) {
  runChain<ChainTypes<kQ80, kF16, kQ80, kIq2Xxs, kQ2K>>(given);
}
extern "C" __global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    decode_chain_q4k_q4k(const __grid_constant__ DecodeChain given) {
  runChain<ChainTypes<kQ80, kF16, kQ80, kQ4K, kQ4K>>(given);
}

}  // namespace ds4::cuda
