#include "serve/step_watchdog.h"

#include <fmt/format.h>

#include <algorithm>

namespace tactus::serve {

std::optional<std::string> StepWatchdog::Look(const EngineStats& stats, TimeNs now_ns) {
  if (factor_ <= 0) return std::nullopt;
  const int64_t step = stats.step_in_flight;
  if (stuck() && step != stuck_step_) {
    const std::string text = fmt::format("warning: the result of step {} came after {:.1f} s; the server works again",
                                         stuck_step_, static_cast<double>(now_ns - stuck_since_ns_) * 1e-9);
    stuck_step_ = late_step_ = -1;
    return text;
  }
  const double predicted_ns = static_cast<double>(stats.step_predicted_ns);
  const double limit_ns = predicted_ns > 0 ? factor_ * predicted_ns : static_cast<double>(kUnpredictedNs);
  const DurationNs waited_ns = now_ns - stats.step_since_ns;
  const bool late = step >= 0 && static_cast<double>(waited_ns) > std::max(limit_ns, static_cast<double>(least_ns_));
  if (!late || step != late_step_) looks_ = 0;
  late_step_ = late ? step : -1;
  if (!late || stuck() || ++looks_ < kLooks) return std::nullopt;
  stuck_step_ = step;
  stuck_since_ns_ = stats.step_since_ns;
  return fmt::format(
      "error: step {} has no result after {:.1f} s; predicted were {}: the executor or its device hangs "
      "(--step-watchdog {:g}, --step-watchdog-least {:g} s)",
      step, static_cast<double>(waited_ns) * 1e-9,
      predicted_ns > 0 ? fmt::format("{:.3f} ms", predicted_ns * 1e-6) : "no time", factor_,
      static_cast<double>(least_ns_) * 1e-9);
}

}  // namespace tactus::serve
