// Estimates the remaining time of a run from its progress. Pure: any thread.
#pragma once

#include <algorithm>
#include <optional>

#include "offline/job/runner.h"

namespace tactus::offline {

// In seconds; null while too few lines have ended. Short lines end first, so the number of ended lines is meaningful
// only once it is as large as the number of running ones. The plan's measure of work (RunProgress::work_share) accounts
// for long lines, but starts from max_tokens: it is clamped to within a factor of 3 of the estimate by lines.
// `done_here`: lines that ended in this run.
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

}  // namespace tactus::offline
