// Decode of one token: router, shared expert and the chosen experts in three launches.
//
// Bytes moved: the packed weights once. On an H200, within decode: router with shared gate and up 20 MB in 11 to 13 us (35 to 44 % of
// copy speed), six experts' gate and up of IQ2_XXS 26 MB in 27 us (23 %, limited by instructions), down 25 MB in 22 us (26 %).
// The router's choice hides behind the shared expert's gate and up; the experts' down products are summed with their weights
// where they are made, and what follows the block's output happens there too.
#include "cuda/hyper-join.cuh"
#include "cuda/hyper-tail.cuh"
#include "cuda/pair-source.cuh"
#include "cuda/router-choice.cuh"
#include "cuda/shared-sums.cuh"
#include "cuda/stream-rows.cuh"

namespace ds4::cuda {

constexpr int kMostUsedExperts = 32;
constexpr int kMostGatedPairs = 4096;

// Warps that brought 16 of 32 values of h; zero again after each launch.
__device__ unsigned int gatedArrivals[kMostGatedPairs];

/// Gate and up of experts: a task is a panel of both, or a part of its columns. experts: by slot; null: slice 0.
struct GatedSource {
  const uint8_t* data;  // of this lane's matrix
  int64_t sliceBytes;
  int panelBytes, panels, cols, type;
  const int* experts;  // in shared memory
  StagedRows rows;
  int shift;

  __device__ __forceinline__ GatedSource(const Matrix& gate, const Matrix& up, const int* chosen, const StagedRows& staged,
                                         int splitShift)
      : data((threadIdx.x & 16) == 0 ? gate.data : up.data), sliceBytes(gate.sliceBytes), panelBytes(gate.panelBytes),
        panels(gate.rows / 16), cols(gate.cols), type(gate.type), experts(chosen), rows(staged),
        shift(splitShift) {}

  __device__ __forceinline__ const uint8_t* panelAt(int& whole) const {
    int slot = 0;
#pragma unroll 1
    for (; whole >= panels; whole -= panels) slot++;
    const int slice = experts != nullptr ? experts[slot] : 0;
    return data + slice * sliceBytes + static_cast<int64_t>(whole) * panelBytes;
  }
  __device__ __forceinline__ PanelPlace place(int task) const {
    int whole = task >> shift;
    const int split = task - (whole << shift);
    return panelPart(panelAt(whole), cols >> unitShiftOf(type), split, shift, unitBytesOf(type));
  }
  /// Panels of tasks first .. end - 1 of one slice, up to the limit; by one warp.
  __device__ __forceinline__ void prefetch(int first, int end) const {
    int whole = first >> shift;
    const int count = (end - 1 >> shift) + 1 - whole;
    const uint8_t* panel = panelAt(whole);
    const int bytes = min(min(count, panels - whole) * panelBytes, kPrefetchBytes / 2);
    prefetchPart(panel, bytes, static_cast<int>(threadIdx.x) & 15, 16);
  }
  __device__ __forceinline__ const uint8_t* address(const PanelPlace& place) const { return place.from; }
  __device__ __forceinline__ void next(PanelPlace& place) const { nextUnit(place, type); }
  __device__ __forceinline__ void input(const PanelPlace& place, int& first, float& times) const {
    first = place.unit << unitShiftOf(type);
    times = 1.0f;
  }
  __device__ __forceinline__ void add(const uint8_t* block, const Lane& lane, int first, float times, float (&total)[8]) const {
    addIntUnit(type, block, lane, rows, first, times, total);
  }
};

/// Where h goes: float32 and int8 form, `rows` values.
struct GatedOut {
  float* h;
  QuantizedRow quantized;
  int rows;
};

// 16 values of h from the sums of gate (lanes 0 to 15) and up. The warp that has the second half of 32 writes their int8 form.
__device__ __forceinline__ void finishGated(float sum, float limit, const GatedOut& out, int panel) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float up = __shfl_down_sync(0xffffffffu, sum, 16);
  if (lane < 16) __stcg(out.h + 16 * panel + lane, swiglu(sum, up, limit));
  const int first = panel / 2 * 32;
  if (first + 16 < out.rows && !arrivesLast(&gatedArrivals[panel / 2], 2)) return;
  __syncwarp();
  const float value = first + lane < out.rows ? __ldcg(out.h + first + lane) : 0.0f;
  storeQuantized(value, out.quantized, first);
}

/// x [cols] -> logits [experts], then the choice; the int8 form of sharedH [sharedGate.rows] beside it.
struct DecodeRoute {
  Matrix router, sharedGate, sharedUp;
  RouterChoice choice;
  HyperJoin balance;  // for a block of its own
  const float* x;
  const uint8_t* quantized;  // of x
  const int32_t* tokenIds;
  float *logits, *sharedH;
  uint8_t* sharedQuantized;
  int32_t* ids;
  float* weights;
  int32_t* flag;
  float sharedLimit;
  int routerShift, sharedShift, padding;  // tasks per pair and per panel are 2^shift
};

__device__ unsigned int routerArrivals;

/// 256 threads: `routerBlocks` blocks take the router's tasks in turn, the last block the balance, the others the shared
/// expert's. Shared memory as `shared` says: scores [2 * experts] and the staged row in the form that needs most.
extern "C" __global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    decode_route(const __grid_constant__ DecodeRoute r, int tableBytes, int ringStageBytes, int stages, int routerBlocks) {
  const StreamRoom shared{tableBytes, ringStageBytes, stages};
  letNextStart();
  const int block = static_cast<int>(blockIdx.x), gatedBlocks = static_cast<int>(gridDim.x) - 1 - routerBlocks;
  if (block >= routerBlocks + gatedBlocks) {
    __shared__ JoinRoom joinRoom;
    waitForPrevious();
    balanceStreams(r.balance, joinRoom);
    return;
  }
  __shared__ uint64_t barriers[kStreamWarps][kMostStages];
  Ring ring(shared.ring(), barriers, shared.stageBytes, shared.stages);
  if (shared.tableBytes > 0) SharedLattice<kStreamCopies>::fill(StreamRoom::tables());
  const int cols = r.router.cols;
  uint8_t* room = shared.rows() + 2 * r.choice.experts * 4;
  const int pairs = (r.router.rows + 31) / 32, routerTasks = pairs << r.routerShift;
  if (block < routerBlocks) {
    const int shift = r.routerShift;
    const bool ints = usesInt8(r.router.type);
    const StagedRows rows = stagedRows(room, 1, cols, ints);
    float* scores = reinterpret_cast<float*>(shared.rows());
    const float one = 1.0f;
    const auto stage = [&] {
      waitForPrevious();
      if (ints) stageBytes(r.quantized, rows.quants, quantizedBytes(rows.stride));
      else stageRow(r.x, cols, rows, false, true);
      __syncthreads();
    };
    const auto finish = [&](int task, float sum) {
      const int pair = task >> shift, row = 32 * pair + static_cast<int>(threadIdx.x) % 32;
      if (!addShare(pair << shift, task - (pair << shift), 1 << shift, sum)) return;
      if (row < r.router.rows) __stcg(r.logits + row, sum);
      if (!arrivesLast(&routerArrivals, pairs)) return;
      chooseExperts(r.choice, r.logits, *r.tokenIds, r.ids, r.weights, r.flag, scores);
    };
    const PairSource<false> source(r.router, rows, one, shift);
    streamTasks(source, ring, block, routerTasks, routerBlocks, shared.sums(), stage, finish);
    return;
  }
  const StagedRows rows = stagedRows(room, 1, cols, true);
  const GatedSource gated(r.sharedGate, r.sharedUp, nullptr, rows, r.sharedShift);
  const int first = block - routerBlocks, tasks = r.sharedGate.rows / 16 << r.sharedShift;
  if (isLastWarp()) gated.prefetch(first, first + 1);
  const auto stage = [&] {
    waitForPrevious();
    stageBytes(r.quantized, rows.quants, quantizedBytes(rows.stride));
    __syncthreads();
  };
  const auto finish = [&](int task, float sum) {
    const int shift = r.sharedShift, panel = task >> shift, width = r.sharedGate.rows;
    if (!addShare(routerTasks + (panel << shift), task - (panel << shift), 1 << shift, sum)) return;
    finishGated(sum, r.sharedLimit, {r.sharedH, {r.sharedQuantized, width}, width}, panel);
  };
  streamTasks(gated, ring, first, tasks, gatedBlocks, shared.sums(), stage, finish);
}

/// The int8 form of h [used, gate.rows] of the experts ids [used]. gate.rows is a multiple of 128.
struct DecodeUp {
  Matrix gate, up;
  const float* x;
  const uint8_t* quantized;  // of x
  const int32_t* ids;
  float* h;
  uint8_t* hQuantized;
  float limit;
  int used;
};

/// 256 threads, blocks with `perBlock` tasks each; shared memory as `shared` says.
extern "C" __global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    decode_up(const __grid_constant__ DecodeUp u, int tableBytes, int ringStageBytes, int stages, int perBlock) {
  const StreamRoom shared{tableBytes, ringStageBytes, stages};
  __shared__ uint64_t barriers[kStreamWarps][kMostStages];
  Ring ring(shared.ring(), barriers, shared.stageBytes, shared.stages);
  if (shared.tableBytes > 0) SharedLattice<kStreamCopies>::fill(StreamRoom::tables());
  const StagedRows rows = stagedRows(shared.rows(), 1, u.gate.cols, true);
  // Which experts: from the kernel before. The next kernel may read them before it waits: it starts after this wait.
  waitForPrevious();
  letNextStart();
  __shared__ int experts[kMostUsedExperts];
  if (static_cast<int>(threadIdx.x) < u.used) experts[threadIdx.x] = __ldcg(u.ids + threadIdx.x);
  __syncthreads();
  const int first = static_cast<int>(blockIdx.x) * perBlock, end = min(first + perBlock, u.used * (u.gate.rows / 16));
  const GatedSource source(u.gate, u.up, experts, rows, 0);
  if (isLastWarp()) source.prefetch(first, end);
  const auto stage = [&] {
    stageBytes(u.quantized, rows.quants, quantizedBytes(rows.stride));
    __syncthreads();
  };
  const auto finish = [&](int task, float sum) {
    const int all = u.used * u.gate.rows;
    finishGated(sum, u.limit, {u.h, {u.hQuantized, all}, all}, task);
  };
  streamTasks(source, ring, first, end, 1, shared.sums(), stage, finish);
}

/// The block's output, shared + sum over slots of weight times expert, through `tail`.
struct DecodeDown {
  Matrix down, sharedDown;
  HyperTail tail;
  const uint8_t *h, *sharedH;  // int8 forms of [used, down.cols], [sharedDown.cols]
  const int32_t* ids;
  const float* weights;
  int used, shift, sharedShift, padding;  // tasks per pair of panels are 2^shift
};

/// The units of a task that are this warp's: of one expert after another.
struct DownPlace {
  const uint8_t* panel;  // of expert 0
  int slot, at, left;    // the next unit is number `at` of the expert in `slot`
};

/// Pairs of panels of all chosen experts, one after another along the columns: their sums are one sum.
struct DownSource {
  const uint8_t* data;
  int64_t sliceBytes;
  int panelBytes, lastPanel, cols, type, used, shift;
  StagedRows rows;
  const int* experts;    // [used] in shared memory
  const float* weights;  // [used] in shared memory

  __device__ __forceinline__ DownPlace place(int task) const {
    const int pair = task >> shift, split = task - (pair << shift);
    const int panel = min(2 * pair + (static_cast<int>(threadIdx.x) >> 4 & 1), lastPanel);
    const int all = used * (cols >> unitShiftOf(type));
    const int unit = (all * split >> shift) + (static_cast<int>(threadIdx.x) >> 5);
    DownPlace place{data + static_cast<int64_t>(panel) * panelBytes, 0, unit, unitsLeft(unit, all * (split + 1) >> shift)};
    settle(place);
    return place;
  }
  /// A pair of panels of every expert, by one warp: four lanes to an expert.
  __device__ __forceinline__ void prefetch(int task) const {
    const int lane = static_cast<int>(threadIdx.x) & 31, panel = 2 * (task >> shift);
    const int bytes = min(2, lastPanel + 1 - panel) * panelBytes;
#pragma unroll 1
    for (int slot = lane / 4; slot < used; slot += 8) {
      const uint8_t* from = data + experts[slot] * sliceBytes + static_cast<int64_t>(panel) * panelBytes;
      prefetchPart(from, bytes, lane & 3, 4);
    }
  }
  // Past the end of an expert's units follow the next one's.
  __device__ __forceinline__ void settle(DownPlace& place) const {
    const int per = cols >> unitShiftOf(type);
#pragma unroll 1
    for (; place.at >= per; place.at -= per) place.slot++;
  }
  __device__ __forceinline__ void next(DownPlace& place) const {
    place.at += kStreamWarps;
    place.left--;
    settle(place);
  }
  __device__ __forceinline__ const uint8_t* address(const DownPlace& place) const {
    return place.panel + experts[place.slot] * sliceBytes + place.at * unitBytesOf(type);
  }
  __device__ __forceinline__ void input(const DownPlace& place, int& first, float& times) const {
    first = place.slot * rows.stride + (place.at << unitShiftOf(type));
    times = weights[place.slot];
  }
  __device__ __forceinline__ void add(const uint8_t* block, const Lane& lane, int first, float times, float (&total)[8]) const {
    addIntUnit(type, block, lane, rows, first, times, total);
  }
};

/// 256 threads: `expertBlocks` blocks take the chosen experts' tasks in turn, the others the shared one's. Shared memory as
/// `shared` says: the staged rows of the one or of the others.
extern "C" __global__ void __launch_bounds__(kStreamThreads, kStreamBlocks)
    decode_down(const __grid_constant__ DecodeDown d, int tableBytes, int ringStageBytes, int stages, int expertBlocks) {
  const StreamRoom shared{tableBytes, ringStageBytes, stages};
  letNextStart();
  __shared__ uint64_t barriers[kStreamWarps][kMostStages];
  Ring ring(shared.ring(), barriers, shared.stageBytes, shared.stages);
  const int block = static_cast<int>(blockIdx.x), pairs = (d.down.rows + 31) / 32;
  const int shift = d.shift, sharedShift = d.sharedShift, shares = (1 << shift) + (1 << sharedShift);
  const bool isExpert = block < expertBlocks;
  const StagedRows rows = isExpert ? stagedRows(shared.rows(), d.used, d.down.cols, true)
                                   : stagedRows(shared.rows(), 1, d.sharedDown.cols, true);
  const auto stage = [&] {
    waitForPrevious();
    stageBytes(isExpert ? d.h : d.sharedH, rows.quants, quantizedBytes((isExpert ? d.used : 1) * rows.stride));
    __syncthreads();
  };
  const auto put = [&](int pair, int share, float sum) {
    if (addShare(pair * shares, share, shares, sum)) finishBlock(d.tail, pair, sum);
  };
  if (!isExpert) {
    const float one = 1.0f;
    const int first = block - expertBlocks, step = static_cast<int>(gridDim.x) - expertBlocks;
    const PairSource<true> source(d.sharedDown, rows, one, sharedShift);
    if (isLastWarp()) source.prefetch(first, first + 1);
    prefetchColumns(d.tail, first >> sharedShift);
    streamTasks(source, ring, first, pairs << sharedShift, step, shared.sums(), stage, [&](int task, float sum) {
      const int pair = task >> sharedShift;
      put(pair, (1 << shift) + task - (pair << sharedShift), sum);
    });
    return;
  }
  if (shared.tableBytes > 0) SharedLattice<kStreamCopies>::fill(StreamRoom::tables());
  // Written by the kernel before the one before: see decode_up.
  __shared__ int experts[kMostUsedExperts];
  __shared__ float weights[kMostUsedExperts];
  if (static_cast<int>(threadIdx.x) < d.used) {
    experts[threadIdx.x] = __ldcg(d.ids + threadIdx.x);
    weights[threadIdx.x] = __ldcg(d.weights + threadIdx.x);
  }
  __syncthreads();
  const DownSource source{d.down.data, d.down.sliceBytes, d.down.panelBytes, (d.down.rows + 15) / 16 - 1, d.down.cols,
                          d.down.type, d.used, shift, rows, experts, weights};
  if (isLastWarp()) source.prefetch(block);
  streamTasks(source, ring, block, pairs << shift, expertBlocks, shared.sums(), stage, [&](int task, float sum) {
    const int pair = task >> shift;
    put(pair, task - (pair << shift), sum);
  });
}

}  // namespace ds4::cuda
