// Which block of a panel goes to which decoder, once for the portable code and all instruction sets. `Decoders` must be a
// type of an unnamed namespace: then what is instantiated here belongs to one file, compiled with that file's instructions.
//
//   q2k, q4k, iq2xxs (block, tile)   256 columns to `storage`, `scales` and, of the first two, `mins`
//   halves, bfloats (from, to)       a value per row to floats
//   mxfp4 (block, weights)           32 columns to floats
#pragma once
#include <cstring>

#include "cpu/decode.h"

namespace ds4 {

/// `decodePanelInt` by `Decoders`. Q8_0 stays where it is: its scales are all that is decoded.
template <class Decoders>
inline void decodeIntTile(TensorType type, const uint8_t* panel, int64_t colBegin, int count, IntTile& tile) {
  tile.minCount = type == TensorType::Q2_K ? 16 : type == TensorType::Q4_K ? 8 : 0;
  tile.offset = type == TensorType::Q8_0 ? 128 : type == TensorType::IQ2_XXS ? 43 : 0;
  if (type == TensorType::Q8_0) {
    for (int sub = 0; sub < count / kSubCols; sub++) {
      const uint8_t* from = panel + (colBegin / kSubCols + sub) * q80_panel::kBytes;
      tile.quants[sub] = from + q80_panel::kQuants;
      Decoders::halves(from, tile.scales[sub]);
    }
    return;
  }
  for (int sub = 0; sub < 8; sub++) tile.quants[sub] = tile.storage[8 * sub];
  const int64_t block = colBegin / kBlockCols;
  if (type == TensorType::Q2_K) Decoders::q2k(panel + block * q2k_panel::kBytes, tile);
  if (type == TensorType::Q4_K) Decoders::q4k(panel + block * q4k_panel::kBytes, tile);
  if (type == TensorType::IQ2_XXS) Decoders::iq2xxs(panel + block * iq2xxs_panel::kBytes, tile);
}

/// `decodePanel` by `Decoders`, of types that products read as floats; false for others.
template <class Decoders>
inline bool decodeFloatTile(TensorType type, const uint8_t* panel, int64_t colBegin, int count, FloatTile& tile) {
  const auto each = [&](auto decode) {
    const uint8_t* from = panel + colBegin * kPanelRows * 2;
    for (int col = 0; col < count; col++) decode(from + 2 * kPanelRows * col, tile.weights[col]);
  };
  switch (type) {
    case TensorType::F32:
      std::memcpy(tile.weights, panel + 4 * kPanelRows * colBegin, sizeof(tile.weights[0]) * count);
      return true;
    case TensorType::F16:
      each([](const uint8_t* from, float* to) { Decoders::halves(from, to); });
      return true;
    case TensorType::BF16:
      each([](const uint8_t* from, float* to) { Decoders::bfloats(from, to); });
      return true;
    case TensorType::MXFP4:
      for (int sub = 0; sub < count / kSubCols; sub++) {
        const uint8_t* from = panel + (colBegin / kSubCols + sub) * mxfp4_panel::kBytes;
        Decoders::mxfp4(from, tile.weights + kSubCols * sub);
      }
      return true;
    default: return false;
  }
}

}  // namespace ds4
