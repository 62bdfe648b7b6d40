// Parameters of the product kernels, passed by value; mirrored by src/backend/cuda/matrix-structs.ts.
#pragma once
#include "cuda/matrix.cuh"

namespace ds4::cuda {

constexpr int kMaxProducts = 8;

/// out [rows of the input, matrix.rows]
struct Product {
  Matrix matrix;
  float* out;
};

struct Products {
  Product items[kMaxProducts];
  int count, padding;
};

/// Rows grouped by expert (group_by_expert).
struct Routing {
  const int* begin;        // [experts + 1]
  const int* rowToken;     // [rows]
  const int* slotRow;      // [rows]
  const int* active;       // experts with rows, ascending
  const int* activeCount;  // [1]
};

/// Gate and up in one kernel: h [tokens * used, inner] by grouped row, sharedH [tokens, sharedInner].
struct ExpertsUp {
  Matrix gate, up, sharedGate, sharedUp;
  Input input;
  Routing routing;
  float *h, *sharedH;
  float limit, sharedLimit;
};

/// Grouped product: out [rows, matrix.rows]; row i of the group reads input row rowToken[i] (`gather`) or i itself. The
/// shared matrix, where there is one, reads its own input rows into its own out.
struct ExpertProducts {
  Matrix matrix, shared;
  Input input, sharedInput;
  Routing routing;
  float *out, *sharedOut;
  int gather, padding;
};

__device__ __forceinline__ int pairsOf(int rows) { return (rows + 31) / 32; }

/// Panels 2 * pair and the next of a slice; the first twice where rows end.
__device__ __forceinline__ void pairPanels(const Matrix& matrix, int slice, int firstPanel, int panels,
                                           const uint8_t* (&out)[2]) {
  out[0] = panelOf(matrix, slice, firstPanel);
  out[1] = panels > 1 ? panelOf(matrix, slice, firstPanel + 1) : out[0];
}

}  // namespace ds4::cuda
