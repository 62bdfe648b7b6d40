// Decode of one token: router, shared expert and the chosen experts in three launches.
//
// Bytes moved: the packed weights once. The router's choice hides behind the shared expert's gate and up; the experts' down
// products are summed with their weights where they are made, and what follows the block's output happens there too.
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
  const Matrix &gate, &up;
  const int* experts;  // in shared memory
  StagedRows rows;
  const uint8_t* tables;
  int unitCols, splits;

  __device__ __forceinline__ PanelPlace place(int task) const {
    const int panels = gate.rows / 16, whole = task / splits;
    const int split = task - whole * splits, slot = whole / panels;
    const int slice = experts != nullptr ? experts[slot] : 0;
    const Matrix& matrix = (threadIdx.x & 16) == 0 ? gate : up;
    return panelPart(panelOf(matrix, slice, whole - slot * panels), (gate.cols + unitCols - 1) / unitCols, split, splits);
  }
  template <class Stream>
  __device__ __forceinline__ int prefetch(const PanelPlace& place) const {
    return prefetchUnits<Stream>(gate.type, place.panel, place.first, place.units, gate.cols / unitCols);
  }
  template <class Stream>
  __device__ __forceinline__ void fetch(const PanelPlace& place, int unit, Stream& stream, const Lane& lane) const {
    stream.load(place.panel, place.first + unit, gate.cols, lane);
  }
  template <class Stream>
  __device__ __forceinline__ void add(const PanelPlace& place, int unit, const Stream& stream, const Lane& lane,
                                      float (&total)[8]) const {
    stream.add(place.first + unit, lane, rows, 0, 1.0f, tables, total);
  }
};

/// Where h goes: float32 and int8 form, `rows` values; firstArrival: of its pairs of panels.
struct GatedOut {
  float* h;
  QuantizedRow quantized;
  int rows, firstArrival;
};

// 16 values of h from the sums of gate (lanes 0 to 15) and up. The warp that has the second half of 32 writes their int8 form.
__device__ __forceinline__ void finishGated(float sum, float limit, const GatedOut& out, int panel) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float up = __shfl_down_sync(0xffffffffu, sum, 16);
  if (lane < 16) __stcg(out.h + 16 * panel + lane, swiglu(sum, up, limit));
  const int first = panel / 2 * 32;
  if (first + 16 < out.rows && !arrivesLast(&gatedArrivals[out.firstArrival + panel / 2], 2)) return;
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
  int routerSplits, sharedSplits, firstArrival;
};

__device__ unsigned int routerArrivals;

/// 256 threads, one block more than share the tasks; shared memory: sums, scores [2 * experts], tables where `tableBytes` is
/// not 0, the staged row in both forms.
extern "C" __global__ void __launch_bounds__(kStreamThreads, 2)
    decode_route(const __grid_constant__ DecodeRoute r, int tableBytes) {
  letNextStart();
  const int grid = static_cast<int>(gridDim.x) - 1, block = static_cast<int>(blockIdx.x);
  if (block == grid) {
    __shared__ JoinRoom joinRoom;
    waitForPrevious();
    balanceStreams(r.balance, joinRoom);
    return;
  }
  uint8_t* room = dynamicShared();
  float* partial = reinterpret_cast<float*>(room);
  float* scores = reinterpret_cast<float*>(room + kStreamPartialBytes);
  uint8_t* tables = room + kStreamPartialBytes + 2 * r.choice.experts * 4;
  if (tableBytes > 0) SharedLattice<kStreamCopies>::fill(tables);
  const int cols = r.router.cols;
  const StagedRows rows = stagedRows(tables + tableBytes, 1, cols, true);
  const int pairs = (r.router.rows + 31) / 32, routerTasks = pairs * r.routerSplits;
  const float one = 1.0f;
  bool staged = false;
  const auto stage = [&] {
    if (staged) return;
    staged = true;
    waitForPrevious();
    stageBytes(r.quantized, rows.quants, quantizedBytes(rows.stride));
    if (!usesInt8(r.router.type) || !usesInt8(r.sharedGate.type)) stageRow(r.x, cols, rows, false, true);
    __syncthreads();
  };
  if (block < routerTasks) {
    const auto finish = [&](int task, float sum) {
      const int pair = task / r.routerSplits, row = 32 * pair + static_cast<int>(threadIdx.x) % 32;
      if (!addShare(pair * r.routerSplits, task - pair * r.routerSplits, r.routerSplits, sum)) return;
      if (row < r.router.rows) __stcg(r.logits + row, sum);
      if (!arrivesLast(&routerArrivals, pairs)) return;
      chooseExperts(r.choice, r.logits, *r.tokenIds, r.ids, r.weights, r.flag, scores);
    };
    withStream(r.router.type, [&](auto tag) {
      using Stream = typename decltype(tag)::type;
      const PairSource source{r.router, rows, tables, one, Stream::kUnitCols, r.routerSplits};
      streamTasks<Stream>(source, block, routerTasks, grid, partial, stage, finish);
    });
  }
  // The shared expert's tasks follow in turn.
  const int turn = (block - routerTasks) % grid, first = turn < 0 ? turn + grid : turn;
  const int tasks = r.sharedGate.rows / 16 * r.sharedSplits;
  if (first < tasks) {
    const auto finish = [&](int task, float sum) {
      const int panel = task / r.sharedSplits, share = routerTasks + panel * r.sharedSplits;
      if (!addShare(share, task - panel * r.sharedSplits, r.sharedSplits, sum)) return;
      const int width = r.sharedGate.rows;
      finishGated(sum, r.sharedLimit, {r.sharedH, {r.sharedQuantized, width}, width, r.firstArrival}, panel);
    };
    withStream(r.sharedGate.type, [&](auto tag) {
      using Stream = typename decltype(tag)::type;
      const GatedSource source{r.sharedGate, r.sharedUp, nullptr, rows, tables, Stream::kUnitCols, r.sharedSplits};
      streamTasks<Stream>(source, first, tasks, grid, partial, stage, finish);
    });
  }
  if (!staged) waitForPrevious();
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

/// 256 threads; shared memory: sums, tables where `tableBytes` is not 0, the staged row.
extern "C" __global__ void __launch_bounds__(kStreamThreads, 2)
    decode_up(const __grid_constant__ DecodeUp u, int tableBytes) {
  uint8_t* room = dynamicShared();
  uint8_t* tables = room + kStreamPartialBytes;
  if (tableBytes > 0) SharedLattice<kStreamCopies>::fill(tables);
  const StagedRows rows = stagedRows(tables + tableBytes, 1, u.gate.cols, true);
  // Which experts: from the kernel before. The next kernel may read them before it waits: it starts after this wait.
  waitForPrevious();
  letNextStart();
  __shared__ int experts[kMostUsedExperts];
  if (static_cast<int>(threadIdx.x) < u.used) experts[threadIdx.x] = __ldcg(u.ids + threadIdx.x);
  __syncthreads();
  const auto stage = [&] {
    stageBytes(u.quantized, rows.quants, quantizedBytes(rows.stride));
    __syncthreads();
  };
  const int panels = u.gate.rows / 16, tasks = u.used * panels;
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const auto finish = [&](int task, float sum) {
    const int all = u.used * u.gate.rows;
    finishGated(sum, u.limit, {u.h, {u.hQuantized, all}, all, 0}, task);
  };
  withStream(u.gate.type, [&](auto tag) {
    using Stream = typename decltype(tag)::type;
    const GatedSource source{u.gate, u.up, experts, rows, tables, Stream::kUnitCols, 1};
    streamTasks<Stream>(source, tasks * block / blocks, tasks * (block + 1) / blocks, 1,
                        reinterpret_cast<float*>(room), stage, finish);
  });
}

/// The block's output, shared + sum over slots of weight times expert, through `tail`.
struct DecodeDown {
  Matrix down, sharedDown;
  HyperTail tail;
  const uint8_t *h, *sharedH;  // int8 forms of [used, down.cols], [sharedDown.cols]
  const int32_t* ids;
  const float* weights;
  int used, splits, sharedSplits, padding;
};

/// Where a task's part of the chosen experts' panels lies: units of one expert after another.
struct DownPlace {
  const uint8_t* panel;  // of expert 0
  int first, units;
};

/// Pairs of panels of all chosen experts, one after another along the columns: their sums are one sum.
struct DownSource {
  const DecodeDown& d;
  StagedRows rows;
  const uint8_t* tables;
  const int* experts;    // [used] in shared memory
  const float* weights;  // [used] in shared memory
  int unitCols;
  uint32_t inversePer;  // slotOf

  __device__ __forceinline__ int slotOf(int at) const { return static_cast<int>(__umulhi(static_cast<uint32_t>(at), inversePer)); }
  __device__ __forceinline__ int unitsPerExpert() const { return (d.down.cols + unitCols - 1) / unitCols; }
  __device__ __forceinline__ DownPlace place(int task) const {
    const int pair = task / d.splits, split = task - pair * d.splits;
    const int panel = min(2 * pair + (static_cast<int>(threadIdx.x) >> 4 & 1), (d.down.rows + 15) / 16 - 1);
    const int all = d.used * unitsPerExpert(), first = all * split / d.splits;
    return {panelOf(d.down, 0, panel), first, all * (split + 1) / d.splits - first};
  }
  template <class Stream>
  __device__ __forceinline__ int prefetch(const DownPlace& place) const {
    const int per = unitsPerExpert(), last = place.first + place.units;
    int bytes = 0;
    for (int slot = place.first / per; slot * per < last; slot++) {
      const int from = max(place.first - slot * per, 0), to = min(last - slot * per, per);
      bytes += prefetchUnits<Stream>(d.down.type, place.panel + experts[slot] * d.down.sliceBytes, from, to - from,
                                     d.down.cols / unitCols);
    }
    return bytes;
  }
  template <class Stream>
  __device__ __forceinline__ void fetch(const DownPlace& place, int unit, Stream& stream, const Lane& lane) const {
    const int at = place.first + unit, per = unitsPerExpert(), slot = slotOf(at);
    stream.load(place.panel + experts[slot] * d.down.sliceBytes, at - slot * per, d.down.cols, lane);
  }
  template <class Stream>
  __device__ __forceinline__ void add(const DownPlace& place, int unit, const Stream& stream, const Lane& lane,
                                      float (&total)[8]) const {
    const int at = place.first + unit, per = unitsPerExpert(), slot = slotOf(at);
    stream.add(at - slot * per, lane, rows, slot, weights[slot], tables, total);
  }
};

/// 256 threads; shared memory: sums, tables where `tableBytes` is not 0, the staged rows of the experts, that of the shared one.
extern "C" __global__ void __launch_bounds__(kStreamThreads, 2)
    decode_down(const __grid_constant__ DecodeDown d, int tableBytes, int expertRowBytes) {
  letNextStart();
  uint8_t* room = dynamicShared();
  float* partial = reinterpret_cast<float*>(room);
  uint8_t* tables = room + kStreamPartialBytes;
  if (tableBytes > 0) SharedLattice<kStreamCopies>::fill(tables);
  const StagedRows rows = stagedRows(tables + tableBytes, d.used, d.down.cols, true);
  const StagedRows sharedRows = stagedRows(tables + tableBytes + expertRowBytes, 1, d.sharedDown.cols, true);
  const int grid = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int pairs = (d.down.rows + 31) / 32, tasks = pairs * d.splits, sharedTasks = pairs * d.sharedSplits;
  const int shares = d.splits + d.sharedSplits;
  const float one = 1.0f;
  // Written by the kernel before the one before: see decode_up.
  __shared__ int experts[kMostUsedExperts];
  __shared__ float weights[kMostUsedExperts];
  if (static_cast<int>(threadIdx.x) < d.used) {
    experts[threadIdx.x] = __ldcg(d.ids + threadIdx.x);
    weights[threadIdx.x] = __ldcg(d.weights + threadIdx.x);
  }
  __syncthreads();
  bool staged = false;
  const auto stage = [&] {
    if (staged) return;
    staged = true;
    waitForPrevious();
    stageBytes(d.h, rows.quants, quantizedBytes(d.used * rows.stride));
    stageBytes(d.sharedH, sharedRows.quants, quantizedBytes(sharedRows.stride));
    __syncthreads();
  };
  const auto put = [&](int pair, int share, float sum) {
    if (addShare(pair * shares, share, shares, sum)) finishBlock(d.tail, pair, sum);
  };
  prefetchColumns(d.tail, block / d.splits);
  if (block < tasks) {
    withStream(d.down.type, [&](auto tag) {
      using Stream = typename decltype(tag)::type;
      const int per = (d.down.cols + Stream::kUnitCols - 1) / Stream::kUnitCols;
      // Exact below 2^16 units: rounded up, the error times a unit's number stays below one part.
      const uint32_t inverse = 0xffffffffu / static_cast<uint32_t>(per) + 1;
      const DownSource source{d, rows, tables, experts, weights, Stream::kUnitCols, inverse};
      streamTasks<Stream>(source, block, tasks, grid, partial, stage, [&](int task, float sum) {
        const int pair = task / d.splits;
        put(pair, task - pair * d.splits, sum);
      });
    });
  }
  const int turn = (block - tasks) % grid, first = turn < 0 ? turn + grid : turn;
  if (first < sharedTasks) {
    withStream(d.sharedDown.type, [&](auto tag) {
      using Stream = typename decltype(tag)::type;
      const PairSource source{d.sharedDown, sharedRows, tables, one, Stream::kUnitCols, d.sharedSplits};
      streamTasks<Stream>(source, first, sharedTasks, grid, partial, stage, [&](int task, float sum) {
        const int pair = task / d.sharedSplits;
        put(pair, d.splits + task - pair * d.sharedSplits, sum);
      });
    });
  }
  if (!staged) waitForPrevious();
}

}  // namespace ds4::cuda
