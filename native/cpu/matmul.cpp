// Splits products into tasks of whole panels and runs them on the pool.
#include "cpu/matmul.h"

#include <algorithm>

#include "cpu/isa/op_set.h"
#include "cpu/kernel_level.h"

namespace ds4 {

namespace {

// Activation rows per pass over a panel: their accumulators (8 KiB) stay in the first-level cache beside a tile.
constexpr int kRowsPerPass = 128;

// Work per task in multiply-adds: some 20 to 50 microseconds, long against handing it out, short against a step.
constexpr int64_t kTaskWork = 1 << 21;

struct Task {
  const MatmulJob* job;
  int64_t panelBegin, panelEnd;
};

IntRow intRow(const PreparedInput& input, TensorType type, int64_t row) {
  const int64_t subs = input.cols / kSubCols;
  IntRow view;
  view.quants = input.quants.data() + row * input.cols;
  view.scales = input.scales.data() + row * subs;
  view.sums16 = input.sums16.data() + row * subs * 2;
  view.sums32 = input.sums32.data() + row * subs;
  view.offsets = type == TensorType::Q8_0      ? input.offsets128.data() + row * subs
                 : type == TensorType::IQ2_XXS ? input.offsets43.data() + row * subs
                                               : nullptr;
  return view;
}

int64_t inputRow(const MatmulJob& job, int64_t i) { return job.inputRows ? job.inputRows[i] : i; }

void store(const MatmulJob& job, int64_t panel, int64_t first, int count, const float (*sums)[kPanelRows]) {
  const int64_t rowBegin = panel * kPanelRows;
  const int lanes = static_cast<int>(std::min<int64_t>(kPanelRows, job.rowEnd - rowBegin));
  for (int r = 0; r < count; r++) {
    float* out = job.out + (first + r) * job.outStride + (rowBegin - job.rowBegin);
    std::copy(sums[r], sums[r] + lanes, out);
  }
}

// Two panels in one go; false when there is no such path.
bool runPair(const MatmulJob& job, int64_t panel, const KernelSet& set) {
  const PackedMatrix& weight = *job.weight;
  if (set.pairTimesRows == nullptr || job.count > kDirectRows || usesFloatInput(weight.type)) return false;
  const size_t panelBytes = static_cast<size_t>(kPanelRows) * fileRowBytes(weight.type, weight.cols);
  const uint8_t* data = weight.data + job.slice * weight.sliceBytes + static_cast<size_t>(panel) * panelBytes;
  const int count = static_cast<int>(job.count);
  IntRow rows[kDirectRows];
  for (int r = 0; r < count; r++) rows[r] = intRow(*job.input, weight.type, inputRow(job, r));
  alignas(64) float sums[2 * kDirectRows][kPanelRows];
  if (!set.pairTimesRows(weight.type, data, panelBytes, weight.cols, rows, count, sums)) return false;
  store(job, panel, 0, count, sums);
  store(job, panel + 1, 0, count, sums + count);
  return true;
}

void runPanel(const MatmulJob& job, int64_t panel, const KernelSet& set) {
  const PackedMatrix& weight = *job.weight;
  const PreparedInput& input = *job.input;
  const bool isFloat = usesFloatInput(weight.type);
  const uint8_t* data = weight.data + job.slice * weight.sliceBytes +
                        static_cast<size_t>(panel) * kPanelRows * fileRowBytes(weight.type, weight.cols);
  alignas(64) float sums[kRowsPerPass][kPanelRows];
  IntRow intRows[kRowsPerPass];
  const float* floatRows[kRowsPerPass];
  if (job.count <= kDirectRows) {
    const int count = static_cast<int>(job.count);
    for (int r = 0; r < count; r++) {
      const int64_t row = inputRow(job, r);
      if (!isFloat) intRows[r] = intRow(input, weight.type, row);
      floatRows[r] = input.x + row * input.stride;
    }
    if (set.panelTimesRows(weight.type, data, weight.cols, intRows, floatRows, count, sums)) {
      return store(job, panel, 0, count, sums);
    }
  }
  union {
    IntTile ints;
    FloatTile floats;
  } tile;
  for (int64_t first = 0; first < job.count; first += kRowsPerPass) {
    const int count = static_cast<int>(std::min<int64_t>(kRowsPerPass, job.count - first));
    std::fill(&sums[0][0], &sums[0][0] + count * kPanelRows, 0.0f);
    for (int r = 0; r < count; r++) {
      const int64_t row = inputRow(job, first + r);
      if (!isFloat) intRows[r] = intRow(input, weight.type, row);
    }
    for (int64_t col = 0; col < weight.cols; col += kBlockCols) {
      const int cols = static_cast<int>(std::min<int64_t>(kBlockCols, weight.cols - col));
      if (isFloat) {
        set.decodeFloat(weight.type, data, col, cols, tile.floats);
        for (int r = 0; r < count; r++) floatRows[r] = input.x + inputRow(job, first + r) * input.stride + col;
        set.dotFloat(tile.floats, cols, floatRows, count, sums);
      } else {
        set.decodeInt(weight.type, data, col, cols, tile.ints);
        set.dotInt(tile.ints, cols / kSubCols, col / kSubCols, intRows, count, sums);
      }
    }
    store(job, panel, first, count, sums);
  }
}

}  // namespace

// Only ever grown: after the first full batch no step allocates.
void PreparedInput::reserve(int64_t values) {
  const size_t subs = static_cast<size_t>(values / kSubCols);
  if (quants.size() < static_cast<size_t>(values)) quants.resize(values);
  for (std::vector<float>* sums : {&scales, &sums32}) {
    if (sums->size() < subs) sums->resize(subs);
  }
  if (sums16.size() < 2 * subs) sums16.resize(2 * subs);
  for (std::vector<int32_t>* offsets : {&offsets128, &offsets43}) {
    if (offsets->size() < subs) offsets->resize(subs);
  }
}

void PreparedInput::prepare(const float* source, int64_t rowCount, int64_t colCount, int64_t rowStride, bool needInt8,
                            ThreadPool& pool) {
  x = source;
  rows = rowCount;
  cols = colCount;
  stride = rowStride;
  if (!needInt8) return;
  reserve(rows * cols);
  const OpSet& set = ops();
  pool.run(rows, [&](int64_t row, int) {
    const int64_t at = row * (cols / kSubCols);
    set.quantizeRow(x + row * stride, cols,
                    {quants.data() + row * cols, scales.data() + at, sums16.data() + 2 * at, sums32.data() + at,
                     offsets128.data() + at, offsets43.data() + at});
  });
}

void runMatmuls(const MatmulJob* jobs, size_t jobCount, ThreadPool& pool) {
  const KernelSet& set = kernels();
  thread_local std::vector<Task> tasks;
  tasks.clear();
  for (size_t i = 0; i < jobCount; i++) {
    const MatmulJob& job = jobs[i];
    if (job.count == 0 || job.rowEnd <= job.rowBegin) continue;
    const int64_t begin = job.rowBegin / kPanelRows, end = (job.rowEnd + kPanelRows - 1) / kPanelRows;
    const int64_t work = job.weight->cols * kPanelRows * job.count;
    const int64_t step = std::clamp<int64_t>(kTaskWork / work, 1, 64);
    for (int64_t panel = begin; panel < end; panel += step) {
      tasks.push_back({&job, panel, std::min(panel + step, end)});
    }
  }
  const std::vector<Task>& all = tasks;
  pool.run(static_cast<int64_t>(all.size()), [&all, &set](int64_t index, int) {
    const Task& task = all[index];
    int64_t panel = task.panelBegin;
    while (panel + 2 <= task.panelEnd && runPair(*task.job, panel, set)) panel += 2;
    for (; panel < task.panelEnd; panel++) runPanel(*task.job, panel, set);
  });
}

}  // namespace ds4
