#include "cost/fitted_experts.h"

#include <algorithm>

namespace tactus::cost {
namespace {

double Between(double x0, double y0, double x1, double y1, double x) {
  return y0 + (y1 - y0) * (x - x0) / (x1 - x0);
}

// The roofline that efficiencies relate to.
double FloorNs(const DeviceSpec& d, const WeightFormat& f, double expert_elements, double rows, double touched) {
  return std::max(2 * rows * expert_elements / f.flops, touched * expert_elements * f.weight_bytes / d.bandwidth) * 1e9;
}

}  // namespace

// Beyond the last knot each row costs what it costs where few experts have many rows, the first curve's end: all of
// them are multiplied at that rate once they have as many.
double FittedExperts::CurveNs(const ExpertsCurve& curve, double tokens) const {
  const Knots& us = curve.us;
  if (tokens <= us.front().first) return us.front().second * 1e3;
  const auto above = std::find_if(us.begin(), us.end(), [&](const auto& knot) { return knot.first >= tokens; });
  if (above != us.end())
    return 1e3 * Between((above - 1)->first, (above - 1)->second, above->first, above->second, tokens);
  const Knots& few = curves_.front().us;
  const auto& [x1, y1] = few.back();
  const auto& [x0, y0] = few.size() > 1 ? few[few.size() - 2] : std::pair(0.0, 0.0);
  return 1e3 * (us.back().second + (tokens - us.back().first) * (y1 - y0) / (x1 - x0));
}

double FittedExperts::MeasuredNs(double tokens, double touched) const {
  const auto above =
      std::find_if(curves_.begin(), curves_.end(), [&](const ExpertsCurve& c) { return c.touched >= touched; });
  if (above == curves_.end()) return CurveNs(curves_.back(), tokens);
  if (above == curves_.begin()) return CurveNs(*above, tokens);
  const ExpertsCurve &low = *(above - 1), &high = *above;
  return Between(low.touched, CurveNs(low, tokens), high.touched, CurveNs(high, tokens), touched);
}

std::function<double(int64_t)> FittedExperts::Time(const WeightFormat& format, const ExpertsShape& s) const {
  return [this, format, s](int64_t m) {
    if (m == 0) return 0.0;
    const ExpertsCurve& any = curves_.front();
    const double elements = s.ExpertElements(), measured = 3 * any.hidden * any.inner;
    const double rows = s.Rows(static_cast<double>(m)), touched = s.Touched(static_cast<double>(m));
    const double alike = std::clamp(touched * elements * format.weight_bytes / (measured * measured_.weight_bytes),
                                    any.touched, curves_.back().touched);
    const double alike_rows = rows / touched * alike;
    const double efficiency =
        FloorNs(device_, measured_, measured, alike_rows, alike) / MeasuredNs(alike_rows / any.chosen, alike);
    return FloorNs(device_, format, elements, rows, touched) / efficiency;
  };
}

}  // namespace tactus::cost
