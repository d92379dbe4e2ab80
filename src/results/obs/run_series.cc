#include "results/obs/run_series.h"

namespace tactus::results {
namespace {

constexpr double kNsToMs = 1e-6;
constexpr int64_t kMostQuiet = 4096;  // rows without events in a row; further ones are left out

}  // namespace

void RunSeries::Arrived(TimeNs at_ns) {
  MoveTo(at_ns);
  ++now_.arrived;
  ++now_.in_flight;
}

void RunSeries::Tokens(TimeNs at_ns, DurationNs gap_ns, bool first, int64_t count) {
  MoveTo(at_ns);
  now_.output_tokens += count;
  (first ? ttft_ns_ : gap_ns_).Add(gap_ns, count);
}

void RunSeries::Ended(TimeNs at_ns, End end) {
  MoveTo(at_ns);
  (end == End::kCompleted ? now_.completed : end == End::kFailed ? now_.failed : now_.rejected) += 1;
  --now_.in_flight;
}

void RunSeries::MoveTo(TimeNs at_ns) {
  const TimeNs from_ns = std::max<TimeNs>(at_ns, 0) / interval_ns_ * interval_ns_;
  if (from_ns > now_.from_ns) {
    const bool waits = now_.in_flight > 0;
    Close();
    for (int64_t i = 0; waits && now_.from_ns + interval_ns_ < from_ns && i < kMostQuiet; ++i) {
      now_.from_ns += interval_ns_;
      any_ = true;
      Close();
    }
    now_.from_ns = from_ns;
  }
  any_ = true;
}

void RunSeries::Close() {
  if (!any_) return;
  now_.ttft_ms = ttft_ns_.Summarize(kNsToMs);
  now_.gap_ms = gap_ns_.Summarize(kNsToMs);
  sink_(now_);
  RunInterval next;
  next.from_ns = now_.from_ns;
  next.in_flight = now_.in_flight;
  now_ = next;
  any_ = false;
  ttft_ns_ = {};
  gap_ns_ = {};
}

}  // namespace tactus::results
