// How much longer things take than a model says: the median of measured / predicted over the last kWindow of them, each
// with the weight of its prediction, within [kLeast, kMost]. A weighted median is moved neither by one that was
// disturbed nor by many small ones. The first already counts: a wrong one heals with the next. Predictions are the
// model's own, so that a correction does not act on itself. Where the model is exact the factor is 1 to the bit.
//
// Thread rule: engine thread only.
#pragma once

#include <array>
#include <cstddef>

#include "base/units.h"

namespace tactus::core {

class MeasuredRatio {
 public:
  static constexpr double kLeast = 0.25, kMost = 4;
  static constexpr double kUnknown = 1.75;
  static constexpr size_t kWindow = 32;

  // Precondition: both are more than 0.
  void Observe(DurationNs measured_ns, DurationNs predicted_ns);
  // Drops the oldest observation: it may be true no longer.
  void Forget();
  double factor() const { return factor_; }  // 1: nothing was observed
  // What one in sixteen of the last kWindow exceeded, each alike, for a promise that is to be kept. Those that are
  // missing count as kUnknown, so that few observations promise little.
  double high() const { return high_; }

 private:
  struct Observed {
    double ratio = 1, weight = 0;
  };
  void Update();
  double WeightedMedian();
  double High() const;

  double factor_ = 1, high_ = kUnknown;
  std::array<Observed, kWindow> window_{};  // a ring
  size_t next_ = 0, count_ = 0;             // where the next one goes; how many there are in front of it
  std::array<Observed, kWindow> sorted_{};  // scratch
};

}  // namespace tactus::core
