// Sixteen blocks' worth of numbers side by side: the searches treat sixteen sub-blocks at once, lane by lane, so that
// nothing is ever summed across lanes and every instruction set gives the same bytes (compiled without contraction to
// fused multiply-add). `Bytes` is the register width to build for: compilers lower wider vectors to scalar code.
#pragma once
#include <cstdint>
#include <cstring>

#define DS4_LANE_INLINE inline __attribute__((always_inline))

/// Before a loop whose body is large: unrolled it would only cost compile time.
#if defined(__clang__)
#define DS4_KEEP_LOOP _Pragma("clang loop unroll(disable)")
#else
#define DS4_KEEP_LOOP _Pragma("GCC unroll 1")
#endif

namespace ds4 {

inline constexpr int kLanes = 16;

/// Sixteen answers of a comparison.
template <int Bytes>
struct LaneAnswers {
  typedef int32_t Part __attribute__((vector_size(Bytes)));
  Part part[64 / Bytes];
};

/// Sixteen floats. Small whole numbers (indices, quants) are kept as floats too.
template <int Bytes>
struct Lanes {
  typedef float Part __attribute__((vector_size(Bytes)));
  using Answers = LaneAnswers<Bytes>;
  static constexpr int kParts = 64 / Bytes;
  Part part[kParts];

  DS4_LANE_INLINE Lanes() : Lanes(0.0f) {}
  DS4_LANE_INLINE Lanes(float value) {
    for (int p = 0; p < kParts; p++) part[p] = Part{} + value;
  }
  static DS4_LANE_INLINE Lanes load(const float* from) {
    Lanes lanes;
    for (int p = 0; p < kParts; p++) std::memcpy(&lanes.part[p], from + p * kLanes / kParts, Bytes);
    return lanes;
  }
  DS4_LANE_INLINE void store(float* to) const {
    for (int p = 0; p < kParts; p++) std::memcpy(to + p * kLanes / kParts, &part[p], Bytes);
  }
  DS4_LANE_INLINE float operator[](int lane) const {
    return part[lane / (kLanes / kParts)][lane % (kLanes / kParts)];
  }
  DS4_LANE_INLINE void set(int lane, float value) {
    part[lane / (kLanes / kParts)][lane % (kLanes / kParts)] = value;
  }
  DS4_LANE_INLINE Lanes operator-() const { return Lanes(0.0f) - *this; }
  DS4_LANE_INLINE Lanes& operator+=(const Lanes& other) { return *this = *this + other; }

#define DS4_LANE_OPERATOR(Result, op)                                                    \
  friend DS4_LANE_INLINE Result operator op(const Lanes& a, const Lanes& b) {            \
    Result result;                                                                       \
    for (int p = 0; p < kParts; p++) result.part[p] = a.part[p] op b.part[p];            \
    return result;                                                                       \
  }
  DS4_LANE_OPERATOR(Lanes, +)
  DS4_LANE_OPERATOR(Lanes, -)
  DS4_LANE_OPERATOR(Lanes, *)
  DS4_LANE_OPERATOR(Lanes, /)
  DS4_LANE_OPERATOR(Answers, <)
  DS4_LANE_OPERATOR(Answers, >)
  DS4_LANE_OPERATOR(Answers, ==)
#undef DS4_LANE_OPERATOR
};

/// a where the answer is true, else b.
template <int Bytes>
DS4_LANE_INLINE Lanes<Bytes> choose(const LaneAnswers<Bytes>& answer, const Lanes<Bytes>& a, const Lanes<Bytes>& b) {
  Lanes<Bytes> result;
  for (int p = 0; p < a.kParts; p++) result.part[p] = answer.part[p] ? a.part[p] : b.part[p];
  return result;
}

template <int Bytes>
DS4_LANE_INLINE Lanes<Bytes> minimum(const Lanes<Bytes>& a, const Lanes<Bytes>& b) {
  Lanes<Bytes> result;
  for (int p = 0; p < a.kParts; p++) result.part[p] = a.part[p] < b.part[p] ? a.part[p] : b.part[p];
  return result;
}

template <int Bytes>
DS4_LANE_INLINE Lanes<Bytes> maximum(const Lanes<Bytes>& a, const Lanes<Bytes>& b) {
  Lanes<Bytes> result;
  for (int p = 0; p < a.kParts; p++) result.part[p] = a.part[p] > b.part[p] ? a.part[p] : b.part[p];
  return result;
}

/// Nearest whole number, ties to even, for |x| < 2^22: the sum has no room for a fraction.
template <int Bytes>
DS4_LANE_INLINE Lanes<Bytes> nearest(const Lanes<Bytes>& x) {
  return (x + 12582912.0f) - 12582912.0f;
}

template <int Bytes>
DS4_LANE_INLINE Lanes<Bytes> clampLanes(const Lanes<Bytes>& x, float low, float high) {
  return minimum(maximum(x, Lanes<Bytes>(low)), Lanes<Bytes>(high));
}

/// a / b, and 0 where b is not positive.
template <int Bytes>
DS4_LANE_INLINE Lanes<Bytes> safeRatio(const Lanes<Bytes>& a, const Lanes<Bytes>& b) {
  const Lanes<Bytes> zero, one(1.0f);
  const LaneAnswers<Bytes> positive = b > zero;
  return choose(positive, a / choose(positive, b, one), zero);
}

}  // namespace ds4
