// Gate and up of experts, chosen or shared: the tasks of both matrices side by side, and the hidden values that follow.
#pragma once
#include "cuda/pair-source.cuh"
#include "cuda/shared-sums.cuh"

namespace ds4::cuda {

constexpr int kMostGatedPairs = 4096;

// Warps that brought 16 of 32 values of h; zero again after each launch.
__device__ unsigned int gatedArrivals[kMostGatedPairs];

/// Gate and up of experts: a task is a panel of both, or a part of its columns. experts: by slot; null: slice 0.
template <int Known>
struct GatedSource : PanelUnits {
  const uint8_t *gate, *up;
  int64_t sliceBytes;
  int panelBytes, count, cols;  // count: panels of a slice
  StreamType<Known> type;
  const int* experts;  // in shared memory
  StagedRows rows;
  int shift;

  __device__ __forceinline__ GatedSource(const Matrix& gateMatrix, const Matrix& upMatrix, const int* chosen,
                                         const StagedRows& staged, int splitShift)
      : gate(gateMatrix.data), up(upMatrix.data), sliceBytes(gateMatrix.sliceBytes), panelBytes(gateMatrix.panelBytes),
        count(gateMatrix.rows / 16), cols(gateMatrix.cols), type(gateMatrix.type), experts(chosen), rows(staged),
        shift(splitShift) {}

  // Where a task's panel begins in both matrices.
  __device__ __forceinline__ int64_t panelAt(int task) const {
    int panel = task >> shift, slot = 0;
    if (experts == nullptr) return static_cast<int64_t>(panel) * panelBytes;
#pragma unroll 1
    for (; panel >= count; panel -= count) slot++;
    return experts[slot] * sliceBytes + static_cast<int64_t>(panel) * panelBytes;
  }
  __device__ __forceinline__ PanelPlace place(int task) const {
    return panelPart(cols >> unitShiftOf(type), task & ((1 << shift) - 1), shift, panelAt(task));
  }
  __device__ __forceinline__ void panels(int, const PanelPlace& place, const uint8_t*& first, const uint8_t*& second) const {
    const int64_t at = place.at + place.unit * unitBytesOf(type);
    first = gate + at;
    second = up + at;
  }
  __device__ __forceinline__ void input(const PanelPlace& place, int& first, float& times) const {
    first = place.unit << unitShiftOf(type);
    times = 1.0f;
  }
  __device__ __forceinline__ void add(const uint8_t* block, const Lane& lane, int first, float times, float (&total)[8]) const {
    addUnit<Known>(type, block, lane, rows, first, times, total);
  }
};

/// 16 values of h [rows] from the sums of gate (lanes 0 to 15) and up; the warp that has the second half of 32 writes their int8 form to
/// `quantized`. rows: a multiple of 128.
static __device__ __noinline__ void finishGated(float sum, float limit, float* h, uint8_t* quantized, int rows, int panel) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float up = __shfl_down_sync(0xffffffffu, sum, 16);
  if (lane < 16) __stcg(h + 16 * panel + lane, swiglu(sum, up, limit));
  const int first = panel / 2 * 32;
  if (!arrivesLast(&gatedArrivals[panel / 2], 2)) return;
  __syncwarp();
  storeQuantized(__ldcg(h + first + lane), {quantized, rows}, first);
}

}  // namespace ds4::cuda
