// Decode of one token: the steps of a layer between its attention and the next layer's, in one launch whose blocks stay.
//
// Every step streams weights (stream-rows.cuh) and needs all of the step before. Blocks meet between steps; before they meet, their
// stages already fill with the weights of the step to come, so that the memory goes on while the last blocks end, while all meet
// and while inputs are staged. Launches of their own would each be read, placed and ended anew, some microseconds a time.
//
// Bytes moved: the packed weights once; inputs from the second-level cache, once per block and step.
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

/// 256 threads, blocks that are all resident at once; the shared memory of the step that needs most.
extern "C" __global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    decode_chain(const __grid_constant__ DecodeChain given) {
  letNextStart();
  // Read as parameters every line of them would be waited for by itself, by all multiprocessors at once.
  __shared__ __align__(16) DecodeChain chain;
  const uint4* from = opaque(reinterpret_cast<const uint4*>(&given));
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(sizeof(DecodeChain) / 16); i += kStreamThreads) {
    reinterpret_cast<uint4*>(&chain)[i] = from[i];
  }
  __shared__ RingRoom room;
  __shared__ FinishedPairs finished;
  Ring ring(room);
  if (threadIdx.x == 0) finished.count = 0;
  __syncthreads();
  GridBarrier barrier;
#pragma unroll 1
  for (int i = 0; i < chain.count; i++) {
    const ChainStep& step = chain.steps[i];
    if (i > 0) barrier.arrive();
    ChainBlock own{ring, barrier, finished, step.room};
    ring.lay(own.room.ring(), own.room.stageBytes, own.room.stages);
    switch (step.kind) {
      case kChainProducts: streamProducts(chain.products[step.item], own, step.cut); break;
      case kChainRoute: routeToken(chain.route, own, step.cut); break;
      case kChainUp: expertsUp(chain.up, own, step.cut); break;
      default: expertsDown(chain.down, own, step.cut); break;
    }
  }
}

}  // namespace ds4::cuda
