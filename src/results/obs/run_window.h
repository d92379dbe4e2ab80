// The measured part of a run: all of it, or the part between a warm-up and the end of the load, so that neither an
// empty server nor one that runs dry is measured (docs/reference/api.md, "The measured part").
// Thread rule: none; use from one thread.
#pragma once

#include <algorithm>

#include "base/units.h"

namespace tactus::results {

// The length of a part of a run: a time, or a number of arrivals. Neither: not given.
struct RunLength {
  DurationNs ns = -1;
  int64_t requests = -1;
  bool given() const { return ns >= 0 || requests >= 0; }
};

class RunWindow {
 public:
  RunWindow() = default;  // everything
  // For a load with `arrivals` requests.
  RunWindow(RunLength warmup, RunLength measure, int64_t arrivals)
      : warmup_(warmup), measure_(measure), arrivals_(arrivals), limited_(warmup.given() || measure.given()) {}

  bool limited() const { return limited_; }

  // Call in time order, before other events at the same time. The window opens after the warm-up; it closes after the
  // measured length, and with the last arrival at the latest.
  void Arrived(TimeNs at_ns) {
    if (!limited_ || seen_ == arrivals_) return;
    if (seen_ == 0) first_ns_ = at_ns;
    const bool by_count = warmup_.requests >= 0;
    if (by_count ? seen_ == warmup_.requests : seen_ == 0) {
      begin_ns_ = by_count ? at_ns : After(at_ns, std::max<DurationNs>(warmup_.ns, 0));
      if (measure_.ns >= 0) end_ns_ = After(begin_ns_, measure_.ns);
    }
    if (at_ns >= begin_ns_ && measure_.requests >= 0 && counted_++ == measure_.requests) Close(at_ns);
    if (++seen_ == arrivals_) Close(at_ns);
  }
  bool Holds(TimeNs at_ns) const { return !limited_ || (at_ns >= begin_ns_ && at_ns < end_ns_); }

  // The window's length in a run that has reached `last_ns`, and its start after the first arrival.
  DurationNs LengthNs(TimeNs last_ns) const {
    return begin_ns_ == kNever ? 0 : std::max<DurationNs>(0, std::min(end_ns_, last_ns) - begin_ns_);
  }
  DurationNs FromNs() const { return begin_ns_ == kNever ? 0 : begin_ns_ - first_ns_; }

 private:
  static TimeNs After(TimeNs at_ns, DurationNs ns) { return ns < kNever - at_ns ? at_ns + ns : kNever; }
  void Close(TimeNs at_ns) { end_ns_ = std::min(end_ns_, at_ns); }

  RunLength warmup_, measure_;
  int64_t arrivals_ = 0, seen_ = 0, counted_ = 0;
  bool limited_ = false;
  TimeNs first_ns_ = 0, begin_ns_ = kNever, end_ns_ = kNever;
};

}  // namespace tactus::results
