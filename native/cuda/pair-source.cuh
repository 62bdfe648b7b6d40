// The tasks of a plain matrix: pairs of panels, each cut into 2^splitShift tasks with a run of its columns.
#pragma once
#include "cuda/stream-rows.cuh"

namespace ds4::cuda {

/// Units of a task that are still to come.
struct PanelPlace {
  int unit, end;
};

/// Part `split` of 2^shift of `all` units.
__device__ __forceinline__ PanelPlace panelPart(int all, int split, int shift) {
  return {all * split >> shift, all * (split + 1) >> shift};
}

/// Stages of one panel pair, in turn.
struct PanelStages {
  using Place = PanelPlace;
  static __device__ __forceinline__ int units(const Place& place) { return min(place.end - place.unit, kStreamWarps); }
  static __device__ __forceinline__ int offsetUnits(const Place& place) { return place.unit; }
  static __device__ __forceinline__ void next(Place& place) { place.unit += kStreamWarps; }
  static __device__ __forceinline__ bool ends(const Place& place) { return place.unit >= place.end; }
};

__device__ __forceinline__ int ownUnit(int first) { return first + (static_cast<int>(threadIdx.x) >> 5); }

/// Row 0 of `rows` times a matrix, times factor (read when it is used: it may be known only after the wait).
template <bool kIntsOnly>
struct PairSource : PanelStages {
  const uint8_t* data;
  int panelBytes, lastPanel, cols, type;
  StagedRows rows;
  const float& factor;
  int shift;

  __device__ __forceinline__ PairSource(const Matrix& matrix, const StagedRows& staged, const float& times,
                                        int splitShift)
      : data(matrix.data), panelBytes(matrix.panelBytes), lastPanel((matrix.rows + 15) / 16 - 1), cols(matrix.cols),
        type(matrix.type), rows(staged), factor(times), shift(splitShift) {}

  __device__ __forceinline__ PanelPlace place(int task) const {
    return panelPart(cols >> unitShiftOf(type), task & ((1 << shift) - 1), shift);
  }
  __device__ __forceinline__ void panels(int task, const PanelPlace&, const uint8_t*& first, const uint8_t*& second) const {
    const int panel = 2 * (task >> shift);
    first = data + static_cast<int64_t>(panel) * panelBytes;
    second = panel < lastPanel ? first + panelBytes : first;
  }
  __device__ __forceinline__ void input(const PanelPlace& place, int& first, float& times) const {
    first = ownUnit(place.unit) << unitShiftOf(type);
    times = factor;
  }
  __device__ __forceinline__ void add(const uint8_t* block, const Lane& lane, int first, float times, float (&total)[8]) const {
    if (kIntsOnly) addIntUnit(type, block, lane, rows, first, times, total);
    else addUnit(type, block, lane, rows, first, times, total);
  }
};

}  // namespace ds4::cuda
