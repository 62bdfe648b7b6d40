// The tensor types' blocks as they lie in a GGUF file: packed structs (little-endian host assumed and checked) and
// the small pieces of arithmetic that every reader of a type shares. No loops over rows, no kernels.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

static_assert(std::endian::native == std::endian::little, "GGUF blocks are read in place: little-endian only");

namespace ds4 {

/// Values per block of the small types and of the super-block types.
inline constexpr int kSmallBlock = 32;
inline constexpr int kSuperBlock = 256;

#pragma pack(push, 1)

/// x = d * q
struct BlockQ8_0 {
  uint16_t d;
  int8_t q[32];
};

/// x = 2^(e - 127) * e2m1; value j is the low nibble of q[j], value j + 16 the high nibble.
struct BlockMxfp4 {
  uint8_t e;
  uint8_t q[16];
};

/// Sub-blocks of 16. x = d * (s & 15) * q - dmin * (s >> 4); value i: byte 32 * (i / 128) + i % 32, shift
/// 2 * (i % 128 / 32).
struct BlockQ2K {
  uint8_t scales[16];
  uint8_t q[64];
  uint16_t d;
  uint16_t dmin;
};

/// Sub-blocks of 16. x = d * (scale - 32) * (q - (high bit clear ? 4 : 0)); q as in Q2_K, the high bit of value i
/// is bit i / 32 of high[i % 32].
struct BlockQ3K {
  uint8_t high[32];
  uint8_t q[64];
  uint8_t scales[12];
  uint16_t d;
};

/// Sub-blocks of 32. x = d * scale * q - dmin * min; q: bytes 32k..32k+31 hold sub-block 2k low, 2k + 1 high.
struct BlockQ4K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t q[128];
};

/// As Q4_K with a fifth bit: bit i / 32 of high[i % 32].
struct BlockQ5K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t high[32];
  uint8_t q[128];
};

/// Sub-blocks of 16. x = d * scale * (q - 32). Each half of 128 values has 64 low and 32 high bytes.
struct BlockQ6K {
  uint8_t low[128];
  uint8_t high[64];
  int8_t scales[16];
  uint16_t d;
};

/// Per 32 values: four grid indices, then four 7-bit sign indices with a 4-bit scale s in the top bits.
/// x = d * (0.5 + s) * 0.25 * grid * sign
struct BlockIq2Xxs {
  uint16_t d;
  struct Part {
    uint8_t grid[4];
    uint32_t signsAndScale;
  } parts[8];
};

/// Per 8 values a 9-bit grid index and a 7-bit sign index; per 16 values a 4-bit scale s (low nibble first).
/// x = d * (0.5 + s) * 0.25 * grid * sign
struct BlockIq2Xs {
  uint16_t d;
  uint16_t gridAndSigns[32];
  uint8_t scales[8];
};

/// Per 4 values a grid index; per 32 values four 7-bit sign indices and a 4-bit scale s in the top bits.
/// x = d * (0.5 + s) * 0.5 * grid * sign
struct BlockIq3Xxs {
  uint16_t d;
  uint8_t grid[64];
  uint32_t signsAndScale[8];
};

/// Sub-blocks of 32 with 6-bit scales. x = d * (scale - 32) * kIq4Values[q]; nibbles as in MXFP4.
struct BlockIq4Xs {
  uint16_t d;
  uint16_t scalesHigh;
  uint8_t scalesLow[4];
  uint8_t q[128];
};

#pragma pack(pop)

static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockMxfp4) == 17 && sizeof(BlockQ2K) == 84);
static_assert(sizeof(BlockQ3K) == 110 && sizeof(BlockQ4K) == 144 && sizeof(BlockQ5K) == 176);
static_assert(sizeof(BlockQ6K) == 210 && sizeof(BlockIq2Xxs) == 66 && sizeof(BlockIq2Xs) == 74);
static_assert(sizeof(BlockIq3Xxs) == 98 && sizeof(BlockIq4Xs) == 136);

/// The sixteen values of IQ4_XS.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// 6-bit scale and min of sub-block j (0..7) of Q4_K and Q5_K.
inline void unpackScaleMin(const uint8_t* packed, int j, uint8_t& scale, uint8_t& min) {
  if (j < 4) {
    scale = packed[j] & 63;
    min = packed[j + 4] & 63;
  } else {
    scale = static_cast<uint8_t>((packed[j + 4] & 15) | ((packed[j - 4] >> 6) << 4));
    min = static_cast<uint8_t>((packed[j + 4] >> 4) | ((packed[j] >> 6) << 4));
  }
}

/// 6-bit scale (0..63, the decoder subtracts 32) of sub-block j (0..15) of Q3_K.
inline int unpackScaleQ3K(const uint8_t* packed, int j) {
  const int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4;
  return low | ((packed[8 + j % 4] >> (2 * (j / 4))) & 3) << 4;
}

/// The eight sign bits (1 = minus) of a 7-bit sign index: bit 7 makes the number of minuses even.
inline uint8_t signBits(uint32_t index) {
  return static_cast<uint8_t>(index | (static_cast<uint32_t>(std::popcount(index) & 1) << 7));
}

}  // namespace ds4
