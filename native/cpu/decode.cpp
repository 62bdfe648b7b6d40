#include "cpu/decode.h"

#include <cmath>
#include <cstring>

#include "common/half.h"
#include "common/load.h"
#include "common/lattice-grids.h"
#include "cpu/rare_types.h"
#include "cpu/tile_impl.h"

namespace ds4 {

namespace {

// The portable decoders.
struct Portable {
  static void halves(const uint8_t* from, float* to) {
    for (int row = 0; row < kPanelRows; row++) to[row] = halfToFloat(loadAs<uint16_t>(from + 2 * row));
  }

  static void bfloats(const uint8_t* from, float* to) {
    for (int row = 0; row < kPanelRows; row++) to[row] = bfloatToFloat(loadAs<uint16_t>(from + 2 * row));
  }

  static void mxfp4(const uint8_t* block, float (*weights)[kPanelRows]) {
    for (int col = 0; col < kSubCols; col++) {
      const int shift = col < 16 ? 0 : 4;
      for (int row = 0; row < kPanelRows; row++) {
        const int code = block[mxfp4_panel::kCodes + 16 * (col % 16) + row] >> shift & 15;
        weights[col][row] = block[row] == 255 ? NAN : std::ldexp(kE2m1Values[code], block[row] - 127);
      }
    }
  }

  static void q2k(const uint8_t* panel, IntTile& tile) {
    for (int j = 0; j < 16; j++) {
      for (int row = 0; row < kPanelRows; row++) {
        const int packed = panel[q2k_panel::kScales + 32 * (j / 2) + 2 * row + j % 2];
        tile.mins[j][row] = halfToFloat(loadAs<uint16_t>(panel + 32 + 2 * row)) * static_cast<float>(packed >> 4);
        for (int i = 0; i < 4; i++) {
          const int fields = panel[q2k_panel::kQuants + 64 * j + 4 * row + i];
          for (int group = 0; group < 4; group++) {
            tile.storage[4 * j + group][4 * row + i] = static_cast<uint8_t>((fields >> (2 * group) & 3) * (packed & 15));
          }
        }
      }
    }
    for (int sub = 0; sub < 8; sub++) halves(panel, tile.scales[sub]);
  }

  static void q4k(const uint8_t* panel, IntTile& tile) {
    for (int row = 0; row < kPanelRows; row++) {
      const float d = halfToFloat(loadAs<uint16_t>(panel + 2 * row));
      const float dmin = halfToFloat(loadAs<uint16_t>(panel + 32 + 2 * row));
      const uint32_t high = loadAs<uint32_t>(panel + q4k_panel::kHigh + 4 * row);
      for (int j = 0; j < 8; j++) {
        const uint32_t low = panel[q4k_panel::kLow + 16 * j + row];
        tile.scales[j][row] = d * static_cast<float>((low & 15) | (high >> (2 * j) & 3) << 4);
        tile.mins[j][row] = dmin * static_cast<float>(low >> 4 | (high >> (16 + 2 * j) & 3) << 4);
      }
    }
    for (int pair = 0; pair < 32; pair++) {
      for (int i = 0; i < kGroupBytes; i++) {
        const uint8_t byte = panel[q4k_panel::kQuants + 64 * pair + i];
        tile.storage[2 * pair][i] = byte & 15;
        tile.storage[2 * pair + 1][i] = byte >> 4;
      }
    }
  }

  static void iq2xxs(const uint8_t* panel, IntTile& tile) {
    for (int sub = 0; sub < 8; sub++) {
      const uint8_t* from = panel + iq2xxs_panel::kSubs + iq2xxs_panel::kSubBytes * sub;
      for (int row = 0; row < kPanelRows; row++) {
        const uint32_t high = loadAs<uint32_t>(from + 64 + 4 * row);
        const float d = halfToFloat(loadAs<uint16_t>(panel + 2 * row));
        tile.scales[sub][row] = d * 0.125f * static_cast<float>(2 * (high >> 28) + 1);
        for (int group = 0; group < 4; group++) {
          const uint64_t grid = kIq2XxsGrid[from[4 * row + group]];
          const uint32_t index = high >> (7 * group) & 127;
          const uint32_t signs = index | static_cast<uint32_t>(__builtin_parity(index)) << 7;
          for (int i = 0; i < 8; i++) {
            const int magnitude = static_cast<int>(grid >> (8 * i) & 255);
            const int value = signs >> i & 1 ? 43 - magnitude : 43 + magnitude;
            tile.storage[8 * sub + 2 * group + i / 4][4 * row + i % 4] = static_cast<uint8_t>(value);
          }
        }
      }
    }
  }
};

void decodeFromInts(TensorType type, const uint8_t* panel, int64_t colBegin, int count, FloatTile& out) {
  IntTile tile;
  decodePanelInt(type, panel, colBegin, count, tile);
  for (int col = 0; col < count; col++) {
    const uint8_t* group = tile.quants[col / 32] + kGroupBytes * (col % 32 / 4);
    for (int row = 0; row < kPanelRows; row++) {
      const float min = tile.minCount == 0 ? 0 : tile.mins[tile.minCount == 8 ? col / 32 : col / 16][row];
      out.weights[col][row] = tile.scales[col / 32][row] * static_cast<float>(group[4 * row + col % 4] - tile.offset) - min;
    }
  }
}

void decodeRareTile(TensorType type, const uint8_t* panel, int64_t colBegin, FloatTile& tile) {
  const size_t blockBytes = fileRowBytes(type, kBlockCols);
  const uint8_t* blocks = panel + colBegin / kBlockCols * kPanelRows * blockBytes;
  float values[kBlockCols];
  for (int row = 0; row < kPanelRows; row++) {
    decodeRareBlock(type, blocks + row * blockBytes, values);
    for (int col = 0; col < kBlockCols; col++) tile.weights[col][row] = values[col];
  }
}

}  // namespace

void decodePanelInt(TensorType type, const uint8_t* panel, int64_t colBegin, int count, IntTile& tile) {
  decodeIntTile<Portable>(type, panel, colBegin, count, tile);
}

void decodePanel(TensorType type, const uint8_t* panel, int64_t colBegin, int count, FloatTile& tile) {
  if (!usesFloatInput(type)) return decodeFromInts(type, panel, colBegin, count, tile);
  if (isRareType(type)) return decodeRareTile(type, panel, colBegin, tile);
  decodeFloatTile<Portable>(type, panel, colBegin, count, tile);
}

}  // namespace ds4
