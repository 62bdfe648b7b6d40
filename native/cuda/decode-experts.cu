// Decode of one token: router, shared expert and the chosen experts in three launches.
//
// Bytes moved: the packed weights once. The router's choice hides behind the shared expert's gate and up; the experts' down
// products are summed with their weights where they are made, and what follows the block's output happens there too.
#include "cuda/hyper-tail.cuh"
#include "cuda/router-choice.cuh"
#include "cuda/shared-sums.cuh"
#include "cuda/stream-rows.cuh"

namespace ds4::cuda {

constexpr int kMostUsedExperts = 32;

/// Gate and up of an expert: a task is panel `panel` of both, by parts of the columns. slices: experts by slot, or one.
struct GatedSource {
  const Matrix &gate, &up;
  const int* experts;  // in shared memory; null: slice 0
  StagedRows rows;
  const uint8_t* tables;
  int unitCols, splits;

  struct Place {
    const uint8_t* panel;
    int split, units;
  };

  __device__ __forceinline__ Place place(int task) const {
    const int panels = gate.rows / 16, whole = task / splits;
    const int split = task - whole * splits, slot = whole / panels;
    const int slice = experts != nullptr ? experts[slot] : 0;
    const Matrix& matrix = (threadIdx.x & 16) == 0 ? gate : up;
    const int units = (gate.cols + unitCols - 1) / unitCols;
    return {panelOf(matrix, slice, whole - slot * panels), split, (units - split + splits - 1) / splits};
  }
  template <class Stream>
  __device__ __forceinline__ void fetch(const Place& place, int unit, Stream& stream, const Lane& lane) const {
    stream.load(place.panel, unit * splits + place.split, gate.cols, lane);
  }
  template <class Stream>
  __device__ __forceinline__ void add(const Place& place, int unit, const Stream& stream, const Lane& lane,
                                      float (&total)[8]) const {
    stream.add(unit * splits + place.split, lane, rows, 0, 1.0f, tables, total);
  }
};

// h of 16 rows from the sums of gate (lanes 0 to 15) and up.
__device__ __forceinline__ void storeGated(float sum, float limit, float* h) {
  const float up = __shfl_down_sync(0xffffffffu, sum, 16);
  if (threadIdx.x % 32 < 16) h[threadIdx.x % 32] = swiglu(sum, up, limit);
}

/// A pair of panels of a plain matrix, by parts of the columns.
struct PairSource {
  const Matrix& matrix;
  StagedRows rows;
  const uint8_t* tables;
  int unitCols, splits;

  struct Place {
    const uint8_t* panel;
    int split, units;
  };

  __device__ __forceinline__ Place place(int task) const {
    const int pair = task / splits, split = task - pair * splits;
    const int panel = min(2 * pair + (static_cast<int>(threadIdx.x) >> 4 & 1), (matrix.rows + 15) / 16 - 1);
    const int units = (matrix.cols + unitCols - 1) / unitCols;
    return {panelOf(matrix, 0, panel), split, (units - split + splits - 1) / splits};
  }
  template <class Stream>
  __device__ __forceinline__ void fetch(const Place& place, int unit, Stream& stream, const Lane& lane) const {
    stream.load(place.panel, unit * splits + place.split, matrix.cols, lane);
  }
  template <class Stream>
  __device__ __forceinline__ void add(const Place& place, int unit, const Stream& stream, const Lane& lane,
                                      float (&total)[8]) const {
    stream.add(unit * splits + place.split, lane, rows, 0, 1.0f, tables, total);
  }
};

/// x [cols] -> logits [experts], then the choice; sharedH [sharedGate.rows] beside it.
struct DecodeRoute {
  Matrix router, sharedGate, sharedUp;
  RouterChoice choice;
  const float* x;
  const int32_t* tokenIds;
  float *logits, *sharedH;
  int32_t* ids;
  float* weights;
  int32_t* flag;
  float sharedLimit;
  int routerSplits, sharedSplits, padding;
};

__device__ unsigned int routerArrivals;

/// 256 threads; shared memory: sums, scores [2 * experts], tables where `tableBytes` is not 0, the staged row in the forms needed.
extern "C" __global__ void __launch_bounds__(kStreamThreads, 2)
    decode_route(const __grid_constant__ DecodeRoute r, int tableBytes) {
  letNextStart();
  uint8_t* room = dynamicShared();
  float* partial = reinterpret_cast<float*>(room);
  float* scores = reinterpret_cast<float*>(room + kStreamPartialBytes);
  uint8_t* tables = room + kStreamPartialBytes + 2 * r.choice.experts * 4;
  if (tableBytes > 0) SharedLattice<kStreamCopies>::fill(tables);
  const int cols = r.router.cols, grid = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const StagedRows rows = stagedRows(tables + tableBytes, 1, cols, true);
  const int pairs = (r.router.rows + 31) / 32, routerTasks = pairs * r.routerSplits;
  bool staged = false;
  const auto stage = [&] {
    if (staged) return;
    staged = true;
    waitForPrevious();
    const bool quants = usesInt8(r.router.type) || usesInt8(r.sharedGate.type);
    stageRow(r.x, cols, rows, 0, quants, !usesInt8(r.router.type) || !usesInt8(r.sharedGate.type));
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
      const PairSource source{r.router, rows, tables, Stream::kUnitCols, r.routerSplits};
      streamTasks<Stream>(source, block, routerTasks, grid, partial, stage, finish);
    });
  }
  // The shared expert's tasks follow in turn.
  const int turn = (block - routerTasks) % grid, first = turn < 0 ? turn + grid : turn;
  const int tasks = r.sharedGate.rows / 16 * r.sharedSplits;
  if (first < tasks) {
    const auto finish = [&](int task, float sum) {
      const int panel = task / r.sharedSplits;
      const int share = routerTasks + panel * r.sharedSplits;
      if (!addShare(share, task - panel * r.sharedSplits, r.sharedSplits, sum)) return;
      storeGated(sum, r.sharedLimit, r.sharedH + 16 * panel);
    };
    withStream(r.sharedGate.type, [&](auto tag) {
      using Stream = typename decltype(tag)::type;
      const GatedSource source{r.sharedGate, r.sharedUp, nullptr, rows, tables, Stream::kUnitCols, r.sharedSplits};
      streamTasks<Stream>(source, first, tasks, grid, partial, stage, finish);
    });
  }
  if (!staged) waitForPrevious();
}

/// h [used, gate.rows] of the experts ids [used].
struct DecodeUp {
  Matrix gate, up;
  const float* x;
  const int32_t* ids;
  float* h;
  float limit;
  int used;
};

/// 256 threads; shared memory: sums, tables where `tableBytes` is not 0, the staged row.
extern "C" __global__ void __launch_bounds__(kStreamThreads, 2)
    decode_up(const __grid_constant__ DecodeUp u, int tableBytes) {
  uint8_t* room = dynamicShared();
  uint8_t* tables = room + kStreamPartialBytes;
  if (tableBytes > 0) SharedLattice<kStreamCopies>::fill(tables);
  const bool quants = usesInt8(u.gate.type);
  const StagedRows rows = stagedRows(tables + tableBytes, 1, u.gate.cols, quants);
  // Which experts: from the kernel before. The next kernel may read them before it waits: it starts after this wait.
  waitForPrevious();
  letNextStart();
  __shared__ int experts[kMostUsedExperts];
  if (static_cast<int>(threadIdx.x) < u.used) experts[threadIdx.x] = __ldcg(u.ids + threadIdx.x);
  __syncthreads();
  const auto stage = [&] {
    stageRow(u.x, u.gate.cols, rows, 0, quants, !quants);
    __syncthreads();
  };
  const int panels = u.gate.rows / 16;
  withStream(u.gate.type, [&](auto tag) {
    using Stream = typename decltype(tag)::type;
    const GatedSource source{u.gate, u.up, experts, rows, tables, Stream::kUnitCols, 1};
    streamTasks<Stream>(source, static_cast<int>(blockIdx.x), u.used * panels, static_cast<int>(gridDim.x),
                        reinterpret_cast<float*>(room), stage,
                        [&](int task, float sum) { storeGated(sum, u.limit, u.h + 16 * task); });
  });
}

/// out [down.rows] = shared + sum over slots of weight times expert; `tail` instead of out where its streams are given.
struct DecodeDown {
  Matrix down, sharedDown;
  HyperTail tail;
  const float *h, *sharedH;  // [used, down.cols], [sharedDown.cols]
  const int32_t* ids;
  const float* weights;
  float* out;
  int used, splits, sharedSplits, padding;
};

/// Pairs of panels of all chosen experts, one after another along the columns: their sums are one sum.
struct DownSource {
  const DecodeDown& d;
  StagedRows rows;
  const uint8_t* tables;
  const int* experts;     // [used] in shared memory
  const float* weights;  // [used] in shared memory
  int unitCols;

  struct Place {
    const uint8_t* panel;  // of expert 0
    int split, units;
  };

  __device__ __forceinline__ int unitsPerExpert() const { return (d.down.cols + unitCols - 1) / unitCols; }
  __device__ __forceinline__ Place place(int task) const {
    const int pair = task / d.splits, split = task - pair * d.splits;
    const int panel = min(2 * pair + (static_cast<int>(threadIdx.x) >> 4 & 1), (d.down.rows + 15) / 16 - 1);
    const int units = d.used * unitsPerExpert();
    return {panelOf(d.down, 0, panel), split, (units - split + d.splits - 1) / d.splits};
  }
  template <class Stream>
  __device__ __forceinline__ void fetch(const Place& place, int unit, Stream& stream, const Lane& lane) const {
    const int at = unit * d.splits + place.split, per = unitsPerExpert(), slot = at / per;
    stream.load(place.panel + experts[slot] * d.down.sliceBytes, at - slot * per, d.down.cols, lane);
  }
  template <class Stream>
  __device__ __forceinline__ void add(const Place& place, int unit, const Stream& stream, const Lane& lane,
                                      float (&total)[8]) const {
    const int at = unit * d.splits + place.split, per = unitsPerExpert(), slot = at / per;
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
  const bool quants = usesInt8(d.down.type), sharedQuants = usesInt8(d.sharedDown.type);
  const StagedRows rows = stagedRows(tables + tableBytes, d.used, d.down.cols, quants);
  const StagedRows sharedRows = stagedRows(tables + tableBytes + expertRowBytes, 1, d.sharedDown.cols, sharedQuants);
  const int grid = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int pairs = (d.down.rows + 31) / 32, tasks = pairs * d.splits, sharedTasks = pairs * d.sharedSplits;
  const int shares = d.splits + d.sharedSplits;
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
    // Rows without padding between them are one long row.
    const int count = d.down.cols % 128 == 0 ? 1 : d.used, cols = d.used / count * d.down.cols;
    StagedRows whole = rows;
    whole.stride = d.used / count * rows.stride;
    for (int i = 0; i < count; i++) stageRow(d.h + i * cols, cols, whole, i, quants, !quants);
    stageRow(d.sharedH, d.sharedDown.cols, sharedRows, 0, sharedQuants, !sharedQuants);
    __syncthreads();
  };
  const auto put = [&](int pair, int share, float sum) {
    if (!addShare(pair * shares, share, shares, sum)) return;
    const int row = 32 * pair + static_cast<int>(threadIdx.x) % 32;
    if (d.tail.streams != nullptr) finishBlock(d.tail, pair, sum);
    else if (row < d.down.rows) d.out[row] = sum;
  };
  if (block < tasks) {
    withStream(d.down.type, [&](auto tag) {
      using Stream = typename decltype(tag)::type;
      const DownSource source{d, rows, tables, experts, weights, Stream::kUnitCols};
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
      const PairSource source{d.sharedDown, sharedRows, tables, Stream::kUnitCols, d.sharedSplits};
      streamTasks<Stream>(source, first, sharedTasks, grid, partial, stage, [&](int task, float sum) {
        const int pair = task / d.sharedSplits;
        put(pair, d.splits + task - pair * d.sharedSplits, sum);
      });
    });
  }
  if (!staged) waitForPrevious();
}

}  // namespace ds4::cuda
