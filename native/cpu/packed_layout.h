// How panels of 16 rows lie in memory. A panel covers all columns of its 16 rows, block after block; byte counts
// are 16 times those of the file's block, so nothing grows. "group" = 4 consecutive columns.
//
// Q8_0     per 32 cols:  16 half d | 8 groups x [16 rows][4] of (q + 128) as u8
// Q2_K     per 256 cols: 16 half d | 16 half dmin | 8 pairs x [16 rows][2] scale bytes of sub-blocks 2p, 2p+1 |
//                        16 sub-blocks x [16 rows][4] bytes; byte i holds columns i, 4+i, 8+i, 12+i in its 2-bit fields
// Q4_K     per 256 cols: 16 half d | 16 half dmin | 8 sub-blocks x [16 rows] (scale low nibble, min high nibble: their
//                        low 4 bits) | [16 rows] u32 of high 2 bits (scale j at 2j, min j at 16 + 2j) |
//                        32 pairs of groups x [16 rows][4]: low nibble the group of the even 4 columns, high the odd
// IQ2_XXS  per 256 cols: 16 half d | 8 x ([16 rows] u32 grid indices | [16 rows] u32 signs and scale)
// MXFP4    per 32 cols:  16 e8m0 | 16 x [16 rows] bytes as in the file (columns j and j + 16)
// F16 BF16 F32           per column: 16 values
// rarer types            per 256 cols: the file's blocks of the 16 rows, one after another
#pragma once
#include <cstddef>
#include <cstdint>

namespace ds4 {

constexpr int kPanelRows = 16;
constexpr int kBlockCols = 256;  // columns of a K-type block, and of one tile
constexpr int kSubCols = 32;     // columns that share an activation scale
constexpr int kGroupBytes = 64;  // 16 rows x 4 columns

namespace q2k_panel {
constexpr size_t kScales = 64, kQuants = 64 + 256, kBytes = 16 * 84;
}
namespace q4k_panel {
constexpr size_t kLow = 64, kHigh = 64 + 128, kQuants = 64 + 192, kBytes = 16 * 144;
}
namespace iq2xxs_panel {
constexpr size_t kSubs = 32, kSubBytes = 128, kBytes = 16 * 66;
}
namespace q80_panel {
constexpr size_t kQuants = 32, kBytes = 16 * 34;
}
namespace mxfp4_panel {
constexpr size_t kCodes = 16, kBytes = 16 * 17;
}

}  // namespace ds4
