// The tasks of a plain matrix: pairs of panels, each cut into 2^splitShift tasks with a run of its columns.
#pragma once
#include "cuda/stream-rows.cuh"

namespace ds4::cuda {

/// Units of a task that are still to come for a warp, and where its panel begins.
struct PanelPlace {
  int unit, end;
  int64_t at;
};

/// Part `split` of 2^shift of `all` units.
__device__ __forceinline__ PanelPlace panelPart(int all, int split, int shift, int64_t at) {
  return {(all * split >> shift) + static_cast<int>(threadIdx.x) / 32, all * (split + 1) >> shift, at};
}

/// Every eighth unit of a panel pair, in turn.
struct PanelUnits {
  using Place = PanelPlace;
  static __device__ __forceinline__ void next(Place& place) { place.unit += kStreamWarps; }
  static __device__ __forceinline__ bool ends(const Place& place) { return place.unit >= place.end; }
};

/// Row 0 of `rows` times a matrix, times factor (read when it is used: it may be known only after the wait). Known: see StreamType.
template <int Known>
struct PairSource : PanelUnits {
  const uint8_t* data;
  int panelBytes, lastPanel, cols;
  StreamType<Known> type;
  StagedRows rows;
  const float& factor;
  int shift;

  __device__ __forceinline__ PairSource(const Matrix& matrix, const StagedRows& staged, const float& times,
                                        int splitShift)
      : data(matrix.data), panelBytes(matrix.panelBytes), lastPanel((matrix.rows + 15) / 16 - 1), cols(matrix.cols),
        type(matrix.type), rows(staged), factor(times), shift(splitShift) {}

  __device__ __forceinline__ PanelPlace place(int task) const {
    const int64_t at = static_cast<int64_t>(2 * (task >> shift)) * panelBytes;
    return panelPart(cols >> unitShiftOf(type), task & ((1 << shift) - 1), shift, at);
  }
  __device__ __forceinline__ void panels(int task, const PanelPlace& place, const uint8_t*& first, const uint8_t*& second) const {
    first = data + place.at + place.unit * unitBytesOf(type);
    second = 2 * (task >> shift) < lastPanel ? first + panelBytes : first;
  }
  __device__ __forceinline__ void input(const PanelPlace& place, int& first, float& times) const {
    first = place.unit << unitShiftOf(type);
    times = factor;
  }
  __device__ __forceinline__ void add(const uint8_t* block, const Lane& lane, int first, float times, float (&total)[8]) const {
    addUnit<Known>(type, block, lane, rows, first, times, total);
  }
};

}  // namespace ds4::cuda
