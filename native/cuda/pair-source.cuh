// The tasks of a plain matrix: pairs of panels, `splits` tasks to a pair, each with a run of its columns.
#pragma once
#include "cuda/stream-rows.cuh"

namespace ds4::cuda {

/// Where a task's part of two panels lies.
struct PanelPlace {
  const uint8_t* panel;  // of this lane
  int first, units, all;  // its first unit, its units, those of a whole panel
};

/// Part `split` of `splits` of a panel of `all` units.
__device__ __forceinline__ PanelPlace panelPart(const uint8_t* panel, int all, int split, int splits) {
  const int first = all * split / splits;
  return {panel, first, all * (split + 1) / splits - first, all};
}

/// Row 0 of `rows` times a matrix, times factor (read when it is used: it may be known only after the wait).
struct PairSource {
  const Matrix& matrix;
  StagedRows rows;
  const uint8_t* tables;
  const float& factor;
  int unitCols, splits;

  __device__ __forceinline__ PanelPlace place(int task) const {
    const int pair = task / splits, split = task - pair * splits;
    const int panel = min(2 * pair + (static_cast<int>(threadIdx.x) >> 4 & 1), (matrix.rows + 15) / 16 - 1);
    return panelPart(panelOf(matrix, 0, panel), (matrix.cols + unitCols - 1) / unitCols, split, splits);
  }
  template <class Stream>
  __device__ __forceinline__ int prefetch(const PanelPlace& place) const {
    return prefetchUnits<Stream>(matrix.type, place.panel, place.first, place.units, matrix.cols / unitCols);
  }
  template <class Stream>
  __device__ __forceinline__ void fetch(const PanelPlace& place, int unit, Stream& stream, const Lane& lane) const {
    stream.load(place.panel, place.first + unit, matrix.cols, lane);
  }
  template <class Stream>
  __device__ __forceinline__ void add(const PanelPlace& place, int unit, const Stream& stream, const Lane& lane,
                                      float (&total)[8]) const {
    stream.add(place.first + unit, lane, rows, 0, factor, tables, total);
  }
};

}  // namespace ds4::cuda
