// The inner loops that differ between instruction sets, as one table chosen at run time.
#pragma once
#include <cstdint>
#include <type_traits>

#include "cpu/decode.h"

/// Before loops over an array of registers: only where every such loop is unrolled early do its elements become registers;
/// else each change is also written to memory, at half the speed.
#define DS4_UNROLL _Pragma("GCC unroll 16")

namespace ds4 {

/// Cuts `count` rows into runs: as many of the first size as there are, then of the next; the last size is 1. Calls
/// body(n, first row) with n as a constant. `Body` must be of an unnamed namespace, for it has its file's instructions.
template <int... Sizes, class Body>
inline void forRuns(int count, const Body& body) {
  int first = 0;
  const auto runsOf = [&](auto n) {
    for (; first + n <= count; first += n) body(n, first);
  };
  (runsOf(std::integral_constant<int, Sizes>{}), ...);
}

/// One activation row in int8 form.
struct IntRow {
  const int8_t* quants;
  const float* scales;      // per 32 columns
  const float* sums16;      // per 16 columns
  const float* sums32;      // per 32 columns
  const int32_t* offsets;   // per 32 columns, -offset * sum, for the weight type at hand; null when its offset is 0
};

/// Most rows of `panelTimesRows`.
constexpr int kDirectRows = 8;

/// Within a set, every function adds up a row in the same order, so that an answer does not depend on what is computed
/// beside it: per 32 columns the scaled sum of whole numbers, then the minima; floats column by column (on AVX: even
/// and odd columns apart, joined every 256).
struct KernelSet {
  const char* name;
  /// out[r][lane] += tile * row r, over `subs` runs of 32 columns starting at run `sub32` of the rows.
  void (*dotInt)(const IntTile& tile, int subs, int64_t sub32, const IntRow* rows, int count, float (*out)[kPanelRows]);
  /// out[r][lane] += tile * row r, over `cols` columns; rows[r] points at the first of them.
  void (*dotFloat)(const FloatTile& tile, int cols, const float* const* rows, int count, float (*out)[kPanelRows]);
  /// Decoders for tiles; the portable ones where a set has no better.
  void (*decodeInt)(TensorType type, const uint8_t* panel, int64_t colBegin, int count, IntTile& tile);
  void (*decodeFloat)(TensorType type, const uint8_t* panel, int64_t colBegin, int count, FloatTile& tile);
  /// A few rows against a whole panel without a tile in between; false when there is no such path for the type and the
  /// count, at most `kDirectRows`. `rows` for products of whole numbers, `x` for those of floats.
  bool (*panelTimesRows)(TensorType type, const uint8_t* panel, int64_t cols, const IntRow* rows, const float* const* x,
                         int count, float (*out)[kPanelRows]);
  /// The same for two neighbouring panels, the second `panelBytes` further on: out[p * count + r]. Null where a set has
  /// none; false as above.
  bool (*pairTimesRows)(TensorType type, const uint8_t* panel, size_t panelBytes, int64_t cols, const IntRow* rows,
                        int count, float (*out)[kPanelRows]) = nullptr;
};

const KernelSet* genericKernels();
const KernelSet* avx2Kernels();    // null where not compiled in
const KernelSet* avx512Kernels();  // null where not compiled in
const KernelSet* neonKernels();    // null where not compiled in

}  // namespace ds4
