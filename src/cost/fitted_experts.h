// Time of a mixture's experts from measured mixtures of a coefficient file.
//
// Thread rule: immutable after construction.
#pragma once

#include <functional>
#include <vector>

#include "cost/coefficient_file.h"
#include "cost/operator_times.h"

namespace tactus::cost {

// The curves of one measured mixture. Another mixture has the efficiency of the measured one where that reads as many
// bytes of weights for as many rows per expert.
class FittedExperts {
 public:
  // `curves`: of one shape and dtype, by rising number of touched experts; not empty. `measured`: their format.
  FittedExperts(std::vector<ExpertsCurve> curves, WeightFormat measured, const DeviceSpec& device)
      : curves_(std::move(curves)), measured_(std::move(measured)), device_(device) {}

  // As OperatorTimes::Experts.
  std::function<double(int64_t)> Time(const WeightFormat& format, const ExpertsShape& shape) const;

 private:
  double MeasuredNs(double tokens, double touched) const;
  double CurveNs(const ExpertsCurve& curve, double tokens) const;

  std::vector<ExpertsCurve> curves_;
  WeightFormat measured_;
  DeviceSpec device_;
};

}  // namespace tactus::cost
