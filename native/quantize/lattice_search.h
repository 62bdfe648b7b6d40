// Exact nearest search in IQ2_XXS's grid for sixteen groups of eight values at once. With scale s the cost of grid
// point g is Σ w·((s·g)² − 2·s·g·a), the weighted squared error less the constant Σ w·a². It is a sum over
// coordinates of three levels each, so that all costs are sums of one entry of a table over the first four
// coordinates and one of a table over the last four.
#pragma once
#include <array>

#include "common/lattice-grids.h"
#include "quantize/lanes.h"

namespace ds4 {

inline constexpr int kGridPoints = 256;
inline constexpr float kGridLevels[3] = {8, 25, 43};

namespace detail {

/// Base-3 codes of the grid points' first and last four coordinates.
struct HalfCodes {
  std::array<uint8_t, kGridPoints> first{}, last{};
};

constexpr HalfCodes halfCodes() {
  HalfCodes codes;
  for (int g = 0; g < kGridPoints; g++) {
    int code[2] = {0, 0};
    for (int i = 0; i < 8; i++) {
      const int level = static_cast<int>(kIq2XxsGrid[g] >> (8 * i)) & 255;
      code[i / 4] = 3 * code[i / 4] + (level == 8 ? 0 : level == 25 ? 1 : 2);
    }
    codes.first[g] = static_cast<uint8_t>(code[0]);
    codes.last[g] = static_cast<uint8_t>(code[1]);
  }
  return codes;
}

inline constexpr HalfCodes kHalfCodes = halfCodes();

}  // namespace detail

/// Sixteen groups: `a` are magnitudes (negative for a value that gets the wrong sign), `w` weights.
struct LatticeGroup {
  alignas(64) float a[8][kLanes], w[8][kLanes];
};

template <int Bytes>
class LatticeCosts {
  using L = Lanes<Bytes>;

 public:
  DS4_LANE_INLINE LatticeCosts(const LatticeGroup& group, const L& s) {
    fill(group.a, group.w, s, first_);
    fill(group.a + 4, group.w + 4, s, last_);
  }

  /// The least cost over the grid.
  DS4_LANE_INLINE L least() const {
    constexpr int kChains = 4;  // independent minima hide the latency of each
    L best[kChains];
    for (int c = 0; c < kChains; c++) best[c] = at(c);
    DS4_KEEP_LOOP for (int g = kChains; g < kGridPoints; g += kChains) {
      for (int c = 0; c < kChains; c++) best[c] = minimum(at(g + c), best[c]);
    }
    return minimum(minimum(best[0], best[1]), minimum(best[2], best[3]));
  }

  /// The index of the grid point of the least cost.
  DS4_LANE_INLINE L nearestPoint() const {
    L best[2] = {at(0), at(1)}, point[2] = {L(0), L(1)}, index[2] = {L(0), L(1)};
    DS4_KEEP_LOOP for (int g = 2; g < kGridPoints; g += 2) {
      for (int c = 0; c < 2; c++) {
        const L cost = at(g + c);
        const auto better = cost < best[c];
        index[c] += L(2);
        best[c] = choose(better, cost, best[c]);
        point[c] = choose(better, index[c], point[c]);
      }
    }
    return choose(best[1] < best[0], point[1], point[0]);
  }

 private:
  DS4_LANE_INLINE L at(int g) const {
    return L::load(first_[detail::kHalfCodes.first[g]]) + L::load(last_[detail::kHalfCodes.last[g]]);
  }

  static DS4_LANE_INLINE void fill(const float (*a)[kLanes], const float (*w)[kLanes], const L& s,
                                   float (*table)[kLanes]) {
    L pair[2][9];
    for (int p = 0; p < 2; p++) {
      L cost[2][3];
      for (int i = 0; i < 2; i++) {
        const L weight = L::load(w[2 * p + i]), twice = L::load(a[2 * p + i]) * 2.0f;
        for (int level = 0; level < 3; level++) {
          const L value = s * kGridLevels[level];
          cost[i][level] = weight * value * (value - twice);
        }
      }
      for (int code = 0; code < 9; code++) pair[p][code] = cost[0][code / 3] + cost[1][code % 3];
    }
    DS4_KEEP_LOOP for (int first = 0; first < 9; first++) {
      for (int second = 0; second < 9; second++) (pair[0][first] + pair[1][second]).store(table[9 * first + second]);
    }
  }

  alignas(64) float first_[81][kLanes], last_[81][kLanes];
};

}  // namespace ds4
