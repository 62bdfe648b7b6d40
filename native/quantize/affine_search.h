// The search behind Q4_K and Q2_K: x ≈ d·s·q − dmin·m with a whole s and m for each sub-block and halves d and dmin
// for each super-block, minimising the weighted squared error. A lane is a sub-block.
//   1. for each sub-block: several starting grids over its range, each refitted by weighted least squares;
//   2. d and dmin from the largest scale and min; s and m to whole numbers, trying the neighbours as well;
//   3. d and dmin refitted by least squares over the super-block; then 2 once more.
#pragma once
#include "quantize/block_weights.h"
#include "quantize/lanes.h"

namespace ds4 {

/// A starting grid: where quant 0 lies within the range, and what is added to the largest quant to give the steps per
/// range.
struct AffineStart {
  float low, steps;
};

/// What one kind of block allows: N values per sub-block, quants 0..QMax, scales and mins 0..SMax, and how many
/// sub-blocks share d and dmin (16 lanes hold 16 / PerBlock super-blocks). A type derives from it and adds `starts`.
template <int N, int QMax, int SMax, int PerBlock>
struct AffineShape {
  static constexpr int values = N, quants = QMax, scales = SMax, perBlock = PerBlock, blocks = kLanes / PerBlock;
};

/// Sixteen sub-blocks, value by value: x normalised to magnitude 1 within its super-block.
template <class Shape>
struct AffineInput {
  Lanes x[Shape::values];
  Lanes w[Shape::values];
  float unit[Shape::blocks];  // what a normalised 1 stands for
};

template <class Shape>
struct AffineResult {
  Lanes s, m;                         // whole numbers
  uint16_t d[Shape::blocks], dmin[Shape::blocks];
  Lanes q[Shape::values];             // whole numbers
};

/// Weighted sums of one assignment of quants.
struct AffineSums {
  Lanes q{}, qq{}, qx{};
};

template <class Shape>
class AffineSearch {
 public:
  explicit DS4_LANE_INLINE AffineSearch(const AffineInput<Shape>& input) : in_(input) {
    for (int i = 0; i < Shape::values; i++) {
      w_ += in_.w[i];
      wx_ += in_.w[i] * in_.x[i];
    }
  }

  DS4_LANE_INLINE void run(AffineResult<Shape>& result) {
    fitSubBlocks();
    firstSuperScales();
    roundScales(true);
    for (int round = 0; round < 2; round++) {
      refitSuperScales();
      roundScales(false);
    }
    finish(result);
  }

 private:
  /// Sums for quants round((x − low) · inverse).
  DS4_LANE_INLINE AffineSums assign(Lanes low, Lanes inverse) const {
    AffineSums sums;
    for (int i = 0; i < Shape::values; i++) {
      const Lanes q = clampLanes(nearest((in_.x[i] - low) * inverse), 0, Shape::quants);
      const Lanes wq = in_.w[i] * q;
      sums.q += wq;
      sums.qq += wq * q;
      sums.qx += wq * in_.x[i];
    }
    return sums;
  }

  /// The best scale and (never positive) offset for an assignment; keeps them where they beat the best so far.
  DS4_LANE_INLINE void keepBetter(const AffineSums& sums) {
    const Lanes zero{};
    const Lanes determinant = w_ * sums.qq - sums.q * sums.q;
    const auto solvable = determinant > w_ * sums.qq * 1e-6f;
    Lanes scale = safeRatio(w_ * sums.qx - wx_ * sums.q, solvable ? determinant : zero);
    Lanes low = solvable ? safeRatio(sums.qq * wx_ - sums.q * sums.qx, determinant) : safeRatio(wx_, w_);
    const auto positive = low > zero;
    scale = positive ? safeRatio(sums.qx, sums.qq) : scale;
    low = positive ? zero : low;
    const Lanes gain = scale * sums.qx + low * wx_;
    const auto better = gain > gain_;
    gain_ = better ? gain : gain_;
    scale_ = better ? scale : scale_;
    low_ = better ? low : low_;
  }

  DS4_LANE_INLINE void fitSubBlocks() {
    Lanes least = in_.x[0], most = in_.x[0];
    for (int i = 1; i < Shape::values; i++) {
      least = minimum(least, in_.x[i]);
      most = maximum(most, in_.x[i]);
    }
    least = minimum(least, Lanes{});
    const Lanes range = most - least;
    const Lanes inverse = safeRatio(allLanes(1.0f), range > 1e-7f ? range : Lanes{});
    gain_ = allLanes(-1e30f);
    for (const AffineStart& start : Shape::starts) {
      keepBetter(assign(least + range * start.low, inverse * (Shape::quants + start.steps)));
    }
    for (int round = 0; round < 2; round++) {
      keepBetter(assign(low_, safeRatio(allLanes(1.0f), scale_)));
    }
  }

  /// d and dmin of each super-block so that the largest scale and min just fit.
  DS4_LANE_INLINE void firstSuperScales() {
    for (int block = 0; block < Shape::blocks; block++) {
      float scale = 0, min = 0;
      for (int lane = block * Shape::perBlock; lane < (block + 1) * Shape::perBlock; lane++) {
        scale = std::max(scale, scale_[lane]);
        min = std::max(min, -low_[lane]);
      }
      setSuperScales(block, scale / Shape::scales, min / Shape::scales);
    }
  }

  /// Stores d and dmin (in normalised units) as halves and keeps what those halves really say.
  DS4_LANE_INLINE void setSuperScales(int block, float d, float dmin) {
    const float unit = in_.unit[block];
    dHalf_[block] = storedHalf(d * unit);
    dminHalf_[block] = storedHalf(dmin * unit);
    const float realD = halfToFloat(dHalf_[block]) / unit, realDmin = halfToFloat(dminHalf_[block]) / unit;
    for (int lane = block * Shape::perBlock; lane < (block + 1) * Shape::perBlock; lane++) {
      d_[lane] = realD;
      dmin_[lane] = realDmin;
    }
  }

  /// A positive scale below the least half still becomes that half: whole s and m can then shrink to match.
  static DS4_LANE_INLINE uint16_t storedHalf(float value) {
    const uint16_t half = value > 0 ? finiteHalf(value) : 0;
    return half == 0 && value > 0 ? 1 : half;
  }

  /// Whole s and m: the nearest to the wanted ones or a neighbour, by the error with re-chosen quants.
  DS4_LANE_INLINE void roundScales(bool first) {
    const Lanes s0 = first ? clampLanes(nearest(safeRatio(minimum(scale_, d_ * 1e3f), d_)), 0, Shape::scales) : s_;
    const Lanes m0 = first ? clampLanes(nearest(safeRatio(minimum(-low_, dmin_ * 1e3f), dmin_)), 0, Shape::scales) : m_;
    Lanes bestError = allLanes(3e38f), bestS = s0, bestM = m0;
    for (int ds = -1; ds <= 1; ds++) {
      for (int dm = -1; dm <= 1; dm++) {
        const Lanes s = clampLanes(s0 + static_cast<float>(ds), 0, Shape::scales);
        const Lanes m = clampLanes(m0 + static_cast<float>(dm), 0, Shape::scales);
        const Lanes error = errorOf(s * d_, m * dmin_);
        const auto better = error < bestError;
        bestError = better ? error : bestError;
        bestS = better ? s : bestS;
        bestM = better ? m : bestM;
      }
    }
    s_ = bestS;
    m_ = bestM;
  }

  DS4_LANE_INLINE Lanes errorOf(Lanes scale, Lanes min) const {
    const Lanes inverse = safeRatio(allLanes(1.0f), scale);
    Lanes error{};
    for (int i = 0; i < Shape::values; i++) {
      const Lanes shifted = in_.x[i] + min;
      const Lanes off = shifted - scale * clampLanes(nearest(shifted * inverse), 0, Shape::quants);
      error += in_.w[i] * off * off;
    }
    return error;
  }

  /// Least squares for d and dmin over each super-block with s, m and the quants fixed.
  DS4_LANE_INLINE void refitSuperScales() {
    const AffineSums sums = assign(-m_ * dmin_, safeRatio(allLanes(1.0f), s_ * d_));
    const Lanes aa = s_ * s_ * sums.qq, am = s_ * m_ * sums.q, mm = m_ * m_ * w_;
    const Lanes ax = s_ * sums.qx, mx = m_ * wx_;
    for (int block = 0; block < Shape::blocks; block++) {
      double saa = 0, sam = 0, smm = 0, sax = 0, smx = 0;
      for (int lane = block * Shape::perBlock; lane < (block + 1) * Shape::perBlock; lane++) {
        saa += aa[lane];
        sam += am[lane];
        smm += mm[lane];
        sax += ax[lane];
        smx += mx[lane];
      }
      const double determinant = saa * smm - sam * sam;
      if (determinant > 1e-6 * saa * smm) {
        const double d = (smm * sax - sam * smx) / determinant, dmin = (sam * sax - saa * smx) / determinant;
        if (d > 0 && dmin > 0) setSuperScales(block, static_cast<float>(d), static_cast<float>(dmin));
      } else if (saa > 0 && smm == 0 && sax > 0) {
        setSuperScales(block, static_cast<float>(sax / saa), 0);
      }
    }
  }

  DS4_LANE_INLINE void finish(AffineResult<Shape>& result) const {
    const Lanes min = m_ * dmin_, inverse = safeRatio(allLanes(1.0f), s_ * d_);
    for (int i = 0; i < Shape::values; i++) {
      result.q[i] = clampLanes(nearest((in_.x[i] + min) * inverse), 0, Shape::quants);
    }
    result.s = s_;
    result.m = m_;
    for (int block = 0; block < Shape::blocks; block++) {
      result.d[block] = dHalf_[block];
      result.dmin[block] = dminHalf_[block];
    }
  }

  const AffineInput<Shape>& in_;
  Lanes w_{}, wx_{};
  Lanes gain_{}, scale_{}, low_{};
  Lanes d_{}, dmin_{}, s_{}, m_{};
  uint16_t dHalf_[Shape::blocks] = {}, dminHalf_[Shape::blocks] = {};
};

}  // namespace ds4
