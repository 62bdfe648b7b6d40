// Half, brain and 8-bit floats to float32 and back: bit-exact, subnormals kept, round to nearest even. Branch-free
// where compilers can then vectorize a loop over them. Knows no block formats.
#pragma once
#include <bit>
#include <cstdint>

namespace ds4 {

/// IEEE half bits to float32. NaN payloads are kept.
inline float halfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fff) << 13;
  // Normal values, infinities and NaN: move the exponent from bias 15 to 127 (for the top exponent to 255).
  const uint32_t bump = magnitude >= 0x0f800000u ? 0x70000000u : 0x38000000u;
  const uint32_t normal = magnitude + bump;
  // Subnormals: the fraction counts multiples of 2^-24; build 0.5 + fraction * 2^-24 and subtract 0.5.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(0x3f000000u | (magnitude >> 13)) - 0.5f);
  return std::bit_cast<float>(sign | (magnitude < 0x00800000u ? subnormal : normal));
}

/// float32 to IEEE half bits: nearest, ties to even; overflow becomes infinity, NaN the quiet NaN 0x7e00.
inline uint16_t floatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t rounded = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t half = magnitude < 0x38800000u ? subnormal : rounded;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // rounds beyond 65504
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  return static_cast<uint16_t>(sign | half);
}

/// bfloat16 bits to float32.
inline float bfloatToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// float32 to bfloat16 bits: nearest, ties to even; NaN stays a (quiet) NaN.
inline uint16_t floatToBfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quietNan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quietNan : rounded);
}

/// e8m0 scale byte to float32: 2^(e - 127); 0 is the subnormal 2^-127, 255 is NaN.
inline float e8m0ToFloat(uint8_t e) {
  const uint32_t bits = e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : static_cast<uint32_t>(e) << 23;
  return std::bit_cast<float>(bits);
}

/// Values of the sixteen e2m1 codes; bit 3 is the sign, code 8 is plain zero.
inline constexpr float kE2m1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                          0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/// e4m3 (the variant without infinities: bias 7, largest 448, 0x7f and 0xff NaN) to float32.
inline float e4m3ToFloat(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
  const uint32_t magnitude = code & 0x7fu;
  const uint32_t normal = (magnitude << 20) + (120u << 23);
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f);
  uint32_t bits = magnitude < 8 ? subnormal : normal;
  bits = magnitude == 0x7f ? 0x7fc00000u : bits;
  return std::bit_cast<float>(sign | bits);
}

}  // namespace ds4
