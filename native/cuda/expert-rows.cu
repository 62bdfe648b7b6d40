// Decode of the experts: gate and up side by side with SwiGLU at the end, then down; the shared expert in the same launches.
//
// Bytes moved: the packed weights of the experts in use, once per 8 rows of an expert. Work is listed on the device (`active`): no
// launch depends on which experts were chosen.
#include "cuda/products.cuh"
#include "cuda/rows-product.cuh"

namespace ds4::cuda {

// Panel `panel` of gate and of up with some rows; h row r = swiglu of both.
template <int Rows>
__device__ __forceinline__ void upPanel(const Matrix& gate, const Matrix& up, int slice, int panel, const Input& input,
                                        const RowList& rows, float* h, float limit, const RowShared& shared) {
  const RowJob job{gate.type, gate.cols, {panelOf(gate, slice, panel), panelOf(up, slice, panel)}, input, rows};
  for (int first = 0; first < rows.count; first += kRowTokens) {
    const int count = min(kRowTokens, rows.count - first);
    rowsProduct<Rows>(job, first, count, shared);
    for (int i = static_cast<int>(threadIdx.x); i < 16 * count; i += static_cast<int>(blockDim.x)) {
      const int token = i / 16, row = i % 16;
      const float value = swiglu(rowSum(shared, token, row), rowSum(shared, token, 16 + row), limit);
      h[static_cast<int64_t>(first + token) * gate.rows + 16 * panel + row] = value;
    }
    __syncthreads();
  }
}

template <int Rows>
__device__ __forceinline__ void expertsUpRows(const ExpertsUp& e, int tokens) {
  const bool needsLattice = e.gate.type == kIq2Xxs || e.sharedGate.type == kIq2Xxs;
  const RowShared shared = rowShared(needsLattice);
  const int sharedPanels = e.sharedGate.rows / 16, panels = e.gate.rows / 16;
  const int tasks = sharedPanels + *e.routing.activeCount * panels;
  for (int task = static_cast<int>(blockIdx.x); task < tasks; task += static_cast<int>(gridDim.x)) {
    if (task < sharedPanels) {
      upPanel<Rows>(e.sharedGate, e.sharedUp, 0, task, e.input, {nullptr, 0, 1, tokens}, e.sharedH, e.sharedLimit, shared);
      continue;
    }
    const int expert = e.routing.active[(task - sharedPanels) / panels];
    const int first = e.routing.begin[expert], count = e.routing.begin[expert + 1] - first;
    upPanel<Rows>(e.gate, e.up, expert, (task - sharedPanels) % panels, e.input,
                  {e.routing.rowToken + first, 0, 0, count}, e.h + static_cast<int64_t>(first) * e.gate.rows, e.limit,
                  shared);
  }
}

extern "C" __global__ void __launch_bounds__(512) experts_up_row(const __grid_constant__ ExpertsUp e) {
  expertsUpRows<1>(e, 1);
}

extern "C" __global__ void __launch_bounds__(512) experts_up_rows(const __grid_constant__ ExpertsUp e, int tokens) {
  expertsUpRows<2>(e, tokens);
}

template <int Rows>
__device__ __forceinline__ void pairRows(const Matrix& matrix, int slice, int pair, const Input& input,
                                         const RowList& rows, float* out, const RowShared& shared) {
  RowJob job{matrix.type, matrix.cols, {}, input, rows};
  pairPanels(matrix, slice, 2 * pair, (matrix.rows + 15) / 16 - 2 * pair, job.panels);
  for (int first = 0; first < rows.count; first += kRowTokens) {
    const int count = min(kRowTokens, rows.count - first);
    rowsProduct<Rows>(job, first, count, shared);
    for (int i = static_cast<int>(threadIdx.x); i < 32 * count; i += static_cast<int>(blockDim.x)) {
      const int token = i / 32, row = 32 * pair + i % 32;
      if (row < matrix.rows) out[static_cast<int64_t>(first + token) * matrix.rows + row] = rowSum(shared, token, i % 32);
    }
    __syncthreads();
  }
}

template <int Rows>
__device__ __forceinline__ void expertProductRows(const ExpertProducts& e, int tokens) {
  const bool needsLattice = e.matrix.type == kIq2Xxs || (e.sharedOut != nullptr && e.shared.type == kIq2Xxs);
  const RowShared shared = rowShared(needsLattice);
  const int sharedPairs = e.sharedOut != nullptr ? pairsOf(e.shared.rows) : 0, pairs = pairsOf(e.matrix.rows);
  const int tasks = sharedPairs + *e.routing.activeCount * pairs;
  for (int task = static_cast<int>(blockIdx.x); task < tasks; task += static_cast<int>(gridDim.x)) {
    if (task < sharedPairs) {
      pairRows<Rows>(e.shared, 0, task, e.sharedInput, {nullptr, 0, 1, tokens}, e.sharedOut, shared);
      continue;
    }
    const int expert = e.routing.active[(task - sharedPairs) / pairs];
    const int first = e.routing.begin[expert], count = e.routing.begin[expert + 1] - first;
    const RowList rows{e.gather != 0 ? e.routing.rowToken + first : nullptr, first, 1, count};
    pairRows<Rows>(e.matrix, expert, (task - sharedPairs) % pairs, e.input, rows,
                   e.out + static_cast<int64_t>(first) * e.matrix.rows, shared);
  }
}

extern "C" __global__ void __launch_bounds__(512) expert_products_row(const __grid_constant__ ExpertProducts e) {
  expertProductRows<1>(e, 1);
}

extern "C" __global__ void __launch_bounds__(512) expert_products_rows(const __grid_constant__ ExpertProducts e,
                                                                       int tokens) {
  expertProductRows<2>(e, tokens);
}

}  // namespace ds4::cuda
