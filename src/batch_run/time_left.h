// How long a run goes on, by what it has done so far. Pure: any thread.
#pragma once

#include <algorithm>
#include <optional>

#include "batch_run/runner.h"

namespace tactus::batch {

// Seconds; nothing before it can be told. Lines end late: of those that run beside each other the shortest come first,
// and none of the others counts as done. So what has ended says something once it is as much as what is under way. The
// plan's own measure of work knows which lines are long, but at first takes answers for as long as they may be: it
// counts within a factor of what the number of lines says.
inline std::optional<double> TimeLeft_s(const RunProgress& p, int64_t done_here) {
  constexpr double kFactor = 3;
  constexpr int64_t kLeastLines = 3;
  const double elapsed_s = static_cast<double>(std::max<DurationNs>(p.elapsed_ns, 1)) * 1e-9;
  if (done_here < kLeastLines || done_here < p.generating) return std::nullopt;
  const double by_lines_s = elapsed_s * static_cast<double>(p.counts.left()) / static_cast<double>(done_here);
  if (p.work_share <= 0) return by_lines_s;
  const double by_work_s = elapsed_s * std::max(0.0, 1 / p.work_share - 1);
  return std::clamp(by_work_s, by_lines_s / kFactor, by_lines_s * kFactor);
}

}  // namespace tactus::batch
