// Portable inner loops: the fallback on unknown processors and the yardstick for the others.
#include "cpu/isa/kernel_set.h"

namespace ds4 {

namespace {

void dotInt(const IntTile& tile, int subs, int64_t sub32, const IntRow* rows, int count, float (*out)[kPanelRows]) {
  for (int r = 0; r < count; r++) {
    const IntRow& row = rows[r];
    for (int sub = 0; sub < subs; sub++) {
      const int64_t at = sub32 + sub;
      int32_t sums[kPanelRows];
      for (int lane = 0; lane < kPanelRows; lane++) sums[lane] = row.offsets ? row.offsets[at] : 0;
      const int8_t* x = row.quants + kSubCols * at;
      for (int group = 0; group < 8; group++) {
        const uint8_t* w = tile.quants[sub] + kGroupBytes * group;
        for (int lane = 0; lane < kPanelRows; lane++) {
          for (int i = 0; i < 4; i++) sums[lane] += w[4 * lane + i] * x[4 * group + i];
        }
      }
      for (int lane = 0; lane < kPanelRows; lane++) {
        out[r][lane] += static_cast<float>(sums[lane]) * (tile.scales[sub][lane] * row.scales[at]);
      }
    }
    const float* sums = tile.minCount == 16 ? row.sums16 + 2 * sub32 : row.sums32 + sub32;
    const int mins = tile.minCount * subs / 8;
    for (int j = 0; j < mins; j++) {
      for (int lane = 0; lane < kPanelRows; lane++) out[r][lane] -= tile.mins[j][lane] * sums[j];
    }
  }
}

void dotFloat(const FloatTile& tile, int cols, const float* const* rows, int count, float (*out)[kPanelRows]) {
  for (int r = 0; r < count; r++) {
    for (int col = 0; col < cols; col++) {
      for (int lane = 0; lane < kPanelRows; lane++) out[r][lane] += tile.weights[col][lane] * rows[r][col];
    }
  }
}

bool noPanelPath(TensorType, const uint8_t*, int64_t, const IntRow*, const float* const*, int, float (*)[kPanelRows]) {
  return false;
}

}  // namespace

const KernelSet* genericKernels() {
  static const KernelSet set = {"generic", dotInt, dotFloat, decodePanelInt, decodePanel, noPanelPath};
  return &set;
}

}  // namespace ds4
