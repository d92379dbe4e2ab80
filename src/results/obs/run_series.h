// Events of a run in intervals of equal length: the time series of a run file (results/obs/run_file.h). Events must be
// passed in time order. An interval without events and without requests in flight has no row. Memory grows with the
// events of one interval. Thread rule: one thread.
#pragma once

#include <functional>

#include "results/obs/latency_values.h"
#include "results/obs/run_file.h"

namespace tactus::results {

class RunSeries {
 public:
  using Sink = std::function<void(const RunInterval&)>;
  RunSeries(DurationNs interval_ns, Sink sink) : interval_ns_(interval_ns), sink_(std::move(sink)) {}

  void Arrived(TimeNs at_ns);
  // `count` tokens at `at_ns`, `gap_ns` after the previous token of their streams; first: after their requests'
  // arrival.
  void Tokens(TimeNs at_ns, DurationNs gap_ns, bool first, int64_t count = 1);
  enum class End : uint8_t { kCompleted, kFailed, kRejected };
  void Ended(TimeNs at_ns, End end);
  // Writes the last interval.
  void Finish() { Close(); }

 private:
  void MoveTo(TimeNs at_ns);
  void Close();

  const DurationNs interval_ns_;
  const Sink sink_;
  RunInterval now_;
  bool any_ = false;  // an event occurred in the interval, or a request is in flight
  ExactValues ttft_ns_, gap_ns_;
};

}  // namespace tactus::results
