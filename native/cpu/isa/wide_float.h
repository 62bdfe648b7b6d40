// Sixteen floats as one value: one register on AVX-512, two on AVX2, four on NEON and SSE. A struct of native registers:
// one 64-byte vector type would live in memory wherever the registers are narrower. Included by ops_impl.h.
#pragma once
#include <cstdint>
#include <cstring>

namespace ds4::DS4_LEVEL {

#define DS4_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
constexpr int kRegisterBytes = 32;
#else
constexpr int kRegisterBytes = 16;
#endif
constexpr int kParts = 64 / kRegisterBytes, kLanes = 16 / kParts;

typedef float Register __attribute__((vector_size(kRegisterBytes)));
typedef int32_t IntRegister __attribute__((vector_size(kRegisterBytes)));

struct v16 {
  Register part[kParts];
};

/// result.part[i] = body(i)
template <class Body>
DS4_INLINE v16 perRegister(Body body) {
  v16 result;
#pragma GCC unroll 4
  for (int i = 0; i < kParts; i++) result.part[i] = body(i);
  return result;
}

DS4_INLINE v16 operator+(const v16& a, const v16& b) { return perRegister([&](int i) { return a.part[i] + b.part[i]; }); }
DS4_INLINE v16 operator-(const v16& a, const v16& b) { return perRegister([&](int i) { return a.part[i] - b.part[i]; }); }
DS4_INLINE v16 operator*(const v16& a, const v16& b) { return perRegister([&](int i) { return a.part[i] * b.part[i]; }); }
DS4_INLINE v16 operator/(const v16& a, const v16& b) { return perRegister([&](int i) { return a.part[i] / b.part[i]; }); }
DS4_INLINE v16 operator-(const v16& a) { return perRegister([&](int i) { return -a.part[i]; }); }
DS4_INLINE v16& operator+=(v16& a, const v16& b) { return a = a + b; }

DS4_INLINE v16 load(const float* from) {
  return perRegister([&](int i) {
    Register value;
    std::memcpy(&value, from + kLanes * i, kRegisterBytes);
    return value;
  });
}

DS4_INLINE void store(float* to, const v16& value) {
#pragma GCC unroll 4
  for (int i = 0; i < kParts; i++) std::memcpy(to + kLanes * i, &value.part[i], kRegisterBytes);
}

DS4_INLINE v16 all(float value) { return perRegister([&](int) { return Register{} + value; }); }

DS4_INLINE v16 minimum(const v16& a, const v16& b) {
  return perRegister([&](int i) { return a.part[i] < b.part[i] ? a.part[i] : b.part[i]; });
}
DS4_INLINE v16 maximum(const v16& a, const v16& b) {
  return perRegister([&](int i) { return a.part[i] > b.part[i] ? a.part[i] : b.part[i]; });
}

DS4_INLINE float sumLanes(const v16& value) {
  Register sum = value.part[0];
#pragma GCC unroll 4
  for (int i = 1; i < kParts; i++) sum += value.part[i];
  float lanes[kLanes];
  std::memcpy(lanes, &sum, sizeof(lanes));
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; i++) lanes[i] += lanes[i + step];
  }
  return lanes[0];
}

DS4_INLINE Register exponential(Register x) {
  const Register lowest = Register{} - 87.0f, magic = Register{} + 12582912.0f;
  const Register clamped = x > lowest ? x : lowest;
  const Register shifted = clamped * 1.44269504f + magic;  // the sum's low bits are the rounded quotient
  const Register n = shifted - magic;
  const Register r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
  Register p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const Register result = (Register)((IntRegister)p + ((IntRegister)shifted << 23));
  return x < lowest ? Register{} : result;
}

/// e^x for x <= 88, relative error below 2e-7; below -87 it is 0. Range reduction by ln 2 in two parts.
DS4_INLINE v16 exponential(const v16& x) {
  return perRegister([&](int i) { return exponential(x.part[i]); });
}

}  // namespace ds4::DS4_LEVEL
