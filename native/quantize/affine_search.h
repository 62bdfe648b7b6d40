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
  alignas(64) float x[Shape::values][kLanes];
  alignas(64) float w[Shape::values][kLanes];
  float unit[Shape::blocks];  // what a normalised 1 stands for
};

template <class Shape>
struct AffineResult {
  // Whole numbers all.
  alignas(64) float s[kLanes], m[kLanes];
  alignas(64) float q[Shape::values][kLanes];
  uint16_t d[Shape::blocks], dmin[Shape::blocks];  // halves
};

/// Weighted sums of one assignment of quants.
template <class L>
struct AffineSums {
  L q, qq, qx;
};

template <class Shape, int Bytes>
class AffineSearch {
  using L = Lanes<Bytes>;
  using Sums = AffineSums<L>;

 public:
  explicit DS4_LANE_INLINE AffineSearch(const AffineInput<Shape>& input) : in_(input) {
    for (int i = 0; i < Shape::values; i++) {
      w_ += w(i);
      wx_ += w(i) * x(i);
    }
  }

  DS4_LANE_INLINE void run(AffineResult<Shape>& result) {
    fitSubBlocks();
    firstSuperScales();
    setNearestScales();
    DS4_KEEP_LOOP for (int round = 0; round < 3; round++) {
      if (round > 0) refitSuperScales();
      tryNeighbours();
    }
    finish(result);
  }

 private:
  DS4_LANE_INLINE L x(int i) const { return L::load(in_.x[i]); }
  DS4_LANE_INLINE L w(int i) const { return L::load(in_.w[i]); }

  /// Sums for quants round((x − low) · inverse).
  DS4_LANE_INLINE Sums assign(L low, L inverse) const {
    Sums sums;
    DS4_KEEP_LOOP for (int i = 0; i < Shape::values; i++) {
      const L q = clampLanes(nearest((x(i) - low) * inverse), 0, Shape::quants);
      const L wq = w(i) * q;
      sums.q += wq;
      sums.qq += wq * q;
      sums.qx += wq * x(i);
    }
    return sums;
  }

  /// The best scale and (never positive) offset for an assignment; keeps them where they beat the best so far.
  DS4_LANE_INLINE void keepBetter(const Sums& sums) {
    const L zero;
    const L determinant = w_ * sums.qq - sums.q * sums.q;
    const auto solvable = determinant > w_ * sums.qq * 1e-6f;
    L scale = safeRatio(w_ * sums.qx - wx_ * sums.q, choose(solvable, determinant, zero));
    L low = choose(solvable, safeRatio(sums.qq * wx_ - sums.q * sums.qx, determinant), safeRatio(wx_, w_));
    const auto positive = low > zero;
    scale = choose(positive, safeRatio(sums.qx, sums.qq), scale);
    low = choose(positive, zero, low);
    const L gain = scale * sums.qx + low * wx_;
    const auto better = gain > gain_;
    gain_ = choose(better, gain, gain_);
    scale_ = choose(better, scale, scale_);
    low_ = choose(better, low, low_);
  }

  DS4_LANE_INLINE void fitSubBlocks() {
    L least = x(0), most = x(0);
    for (int i = 1; i < Shape::values; i++) {
      least = minimum(least, x(i));
      most = maximum(most, x(i));
    }
    least = minimum(least, L());
    const L range = most - least;
    const L inverse = safeRatio(L(1.0f), choose(range > L(1e-7f), range, L()));
    gain_ = L(-1e30f);
    DS4_KEEP_LOOP for (const AffineStart& start : Shape::starts) {
      keepBetter(assign(least + range * start.low, inverse * (Shape::quants + start.steps)));
    }
    DS4_KEEP_LOOP for (int round = 0; round < 2; round++) {
      keepBetter(assign(low_, safeRatio(L(1.0f), scale_)));
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
      d_.set(lane, realD);
      dmin_.set(lane, realDmin);
    }
  }

  /// A positive scale below the least half still becomes that half: whole s and m can then shrink to match.
  static DS4_LANE_INLINE uint16_t storedHalf(float value) {
    const uint16_t half = value > 0 ? finiteHalf(value) : 0;
    return half == 0 && value > 0 ? 1 : half;
  }

  DS4_LANE_INLINE void setNearestScales() {
    s_ = clampLanes(nearest(safeRatio(minimum(scale_, d_ * 1e3f), d_)), 0, Shape::scales);
    m_ = clampLanes(nearest(safeRatio(minimum(-low_, dmin_ * 1e3f), dmin_)), 0, Shape::scales);
  }

  /// Moves s and m by at most one each to where the error, with re-chosen quants, is least.
  DS4_LANE_INLINE void tryNeighbours() {
    const L s0 = s_, m0 = m_;
    L bestError = L(3e38f), bestS = s0, bestM = m0;
    DS4_KEEP_LOOP for (int ds = -1; ds <= 1; ds++) {
      DS4_KEEP_LOOP for (int dm = -1; dm <= 1; dm++) {
        const L s = clampLanes(s0 + static_cast<float>(ds), 0, Shape::scales);
        const L m = clampLanes(m0 + static_cast<float>(dm), 0, Shape::scales);
        const L error = errorOf(s * d_, m * dmin_);
        const auto better = error < bestError;
        bestError = choose(better, error, bestError);
        bestS = choose(better, s, bestS);
        bestM = choose(better, m, bestM);
      }
    }
    s_ = bestS;
    m_ = bestM;
  }

  DS4_LANE_INLINE L errorOf(L scale, L min) const {
    const L inverse = safeRatio(L(1.0f), scale);
    L error;
    DS4_KEEP_LOOP for (int i = 0; i < Shape::values; i++) {
      const L shifted = x(i) + min;
      const L off = shifted - scale * clampLanes(nearest(shifted * inverse), 0, Shape::quants);
      error += w(i) * off * off;
    }
    return error;
  }

  /// Least squares for d and dmin over each super-block with s, m and the quants fixed.
  DS4_LANE_INLINE void refitSuperScales() {
    const Sums sums = assign(-m_ * dmin_, safeRatio(L(1.0f), s_ * d_));
    const L aa = s_ * s_ * sums.qq, am = s_ * m_ * sums.q, mm = m_ * m_ * w_;
    const L ax = s_ * sums.qx, mx = m_ * wx_;
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
    const L min = m_ * dmin_, inverse = safeRatio(L(1.0f), s_ * d_);
    DS4_KEEP_LOOP for (int i = 0; i < Shape::values; i++) {
      clampLanes(nearest((x(i) + min) * inverse), 0, Shape::quants).store(result.q[i]);
    }
    s_.store(result.s);
    m_.store(result.m);
    for (int block = 0; block < Shape::blocks; block++) {
      result.d[block] = dHalf_[block];
      result.dmin[block] = dminHalf_[block];
    }
  }

  const AffineInput<Shape>& in_;
  L w_, wx_;
  L gain_, scale_, low_;
  L d_, dmin_, s_, m_;
  uint16_t dHalf_[Shape::blocks] = {}, dminHalf_[Shape::blocks] = {};
};

}  // namespace ds4
