// The tasks of a plain matrix: pairs of panels, each cut into 2^splitShift tasks with a run of its columns.
#pragma once
#include "cuda/stream-rows.cuh"

namespace ds4::cuda {

/// The units of a task that are this warp's: the next one, and how many there are.
struct PanelPlace {
  const uint8_t* from;  // in this lane's panel
  int unit, left;
};

/// Part `split` of 2^shift of a panel of `all` units.
__device__ __forceinline__ PanelPlace panelPart(const uint8_t* panel, int all, int split, int shift, int unitBytes) {
  const int unit = (all * split >> shift) + (static_cast<int>(threadIdx.x) >> 5);
  return {panel + unit * unitBytes, unit, unitsLeft(unit, all * (split + 1) >> shift)};
}

__device__ __forceinline__ void nextUnit(PanelPlace& place, int type) {
  place.from += kStreamWarps * unitBytesOf(type);
  place.unit += kStreamWarps;
  place.left--;
}

/// Row 0 of `rows` times a matrix, times factor (read when it is used: it may be known only after the wait).
template <bool kIntsOnly>
struct PairSource {
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
    const int pair = task >> shift;
    const int panel = min(2 * pair + (static_cast<int>(threadIdx.x) >> 4 & 1), lastPanel);
    return panelPart(data + static_cast<int64_t>(panel) * panelBytes, cols >> unitShiftOf(type), task - (pair << shift), shift,
                     unitBytesOf(type));
  }
  /// The pairs of tasks first .. end - 1, which lie one after another, up to the limit; by one warp.
  __device__ __forceinline__ void prefetch(int first, int end) const {
    const int from = 2 * (first >> shift), to = min(2 * ((end - 1 >> shift) + 1), lastPanel + 1);
    const int bytes = static_cast<int>(min(static_cast<int64_t>(to - from) * panelBytes, static_cast<int64_t>(kPrefetchBytes)));
    prefetchPart(data + static_cast<int64_t>(from) * panelBytes, bytes, static_cast<int>(threadIdx.x) & 31, 32);
  }
  __device__ __forceinline__ const uint8_t* address(const PanelPlace& place) const { return place.from; }
  __device__ __forceinline__ void next(PanelPlace& place) const { nextUnit(place, type); }
  __device__ __forceinline__ void input(const PanelPlace& place, int& first, float& times) const {
    first = place.unit << unitShiftOf(type);
    times = factor;
  }
  __device__ __forceinline__ void add(const uint8_t* block, const Lane& lane, int first, float times, float (&total)[8]) const {
    if (kIntsOnly) addIntUnit(type, block, lane, rows, first, times, total);
    else addUnit(type, block, lane, rows, first, times, total);
  }
};

__device__ __forceinline__ bool isLastWarp() { return static_cast<int>(threadIdx.x) / 32 == kStreamWarps - 1; }

}  // namespace ds4::cuda
