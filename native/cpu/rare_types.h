// Tensor types that published files use in places but that no kernel is specialised for. They keep the file's blocks
// (16 rows' blocks of the same 256 columns beside each other) and are decoded to float tiles, exactly.
#pragma once
#include <cstdint>

#include "cpu/matmul.h"

namespace ds4 {

/// Q3_K, Q5_K, Q6_K, IQ2_XS, IQ3_XXS, IQ4_XS.
bool isRareType(TensorType type);

/// The 256 values of one block in file layout. `type` is a rare one.
void decodeRareBlock(TensorType type, const uint8_t* block, float* out);

}  // namespace ds4
