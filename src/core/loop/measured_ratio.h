// The ratio of measured to predicted times: the median of measured / predicted over the last kWindow observations,
// weighted by the prediction, within [kLeast, kMost]. A weighted median is robust against single disturbed observations
// and against many small ones. The first observation already counts; later ones correct an outlier. Predictions must be
// uncorrected, so that a correction does not act on itself. For an exact model the factor is exactly 1.
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
  // Drops the oldest observation, which may be outdated.
  void Forget();
  double factor() const { return factor_; }  // 1: no observations
  // A conservative ratio for promises: exceeded by one in sixteen of the last kWindow observations, unweighted. Missing
  // observations count as kUnknown, so that few observations give a cautious ratio.
  double high() const { return high_; }

 private:
  struct Observed {
    double ratio = 1, weight = 0;
  };
  void Update();
  double WeightedMedian();
  double High() const;

  double factor_ = 1, high_ = kUnknown;
  std::array<Observed, kWindow> window_{};  // ring buffer
  size_t next_ = 0, count_ = 0;             // index of the next observation; number of observations before it
  std::array<Observed, kWindow> sorted_{};  // scratch
};

}  // namespace tactus::core
