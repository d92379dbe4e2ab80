// The start of a process that watches a fleet: it waits a moment for replicas, and logs only warnings meanwhile.
#pragma once

#include <atomic>
#include <functional>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "http/serving_process.h"

namespace tactus::fleet {

class QuietStart {
 public:
  // `verbose`: every line is logged, also during the start.
  QuietStart(bool verbose, Clock& clock, http::Log log) : clock_(clock), log_(std::move(log)), started_(verbose) {}

  // Logs a line of the fleet, if it is shown at this time. Any thread.
  void Log(std::string_view line) const {
    if (started_.load() || line.starts_with("warning: ")) log_(line);
  }
  // Returns when `all_ready` is true, a second has passed, or a stop was requested (true).
  bool AwaitReplicas(http::StopSignals& signals, const std::function<bool()>& all_ready) const {
    bool stop = false;
    const TimeNs until_ns = clock_.NowNs() + kSecond;
    while (!stop && !all_ready() && clock_.NowNs() < until_ns) stop = signals.WaitFor(20 * kMillisecond);
    return stop;
  }
  // Every line is logged from now on.
  void End() { started_.store(true); }

 private:
  Clock& clock_;
  const http::Log log_;
  std::atomic<bool> started_;
};

}  // namespace tactus::fleet
