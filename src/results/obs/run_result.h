// From what happens in a run to its result object: one definition of every figure, for every observer (the engine's
// metrics, the simulator, a replay, a load test's client).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/units.h"
#include "results/obs/histogram.h"
#include "results/obs/latency_values.h"
#include "results/obs/run_window.h"
#include "tactus/request.h"
#include "tactus/run_result.h"

namespace tactus::results {

// Clients name classes, so there is a bound on their number; those beyond it are counted together as "other".
inline constexpr size_t kMostClasses = 32;

// A request that was taken and has ended.
struct EndedRequest {
  bool ok = false;  // its answer is complete: not an error, not cancelled
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;       // of all choices
  DurationNs delay_ns = -1;            // arrival to its first share of a step; -1: never, or not seen from here
  DurationNs ttft_ns = -1;             // arrival to its first token; -1: none came
  DurationNs predicted_ttft_ns = -1;   // by the gate when it came; -1: nothing was
  TimeNs arrival_ns = 0, done_ns = 0;  // its end
  DurationNs longest_gap_ns = 0;       // between two tokens of one choice
  int64_t gaps = 0, late_gaps = 0;     // of all choices; late: longer than the TBT objective
  Slo slo;
  std::string_view slo_class;
};

// Thread rule: none of its own; callers that share it lock.
class RunAccumulator {
 public:
  // `exact`: every latency is kept, for percentiles without a bucket's error; memory grows with the run. `window`: what
  // counts. With one that is limited, what happens is told in the order of time, or arrivals first.
  explicit RunAccumulator(bool exact = false, RunWindow window = {});

  // A request came, whatever becomes of it.
  void Arrived(TimeNs arrival_ns) {
    ++arrived_;
    first_come_ns_ = std::min(first_come_ns_, arrival_ns);
    last_come_ns_ = std::max(last_come_ns_, arrival_ns);
    window_.Arrived(arrival_ns);
  }
  // `count` tokens that came at `at_ns`, so long after their stream's previous one; first: after their requests'
  // arrival.
  void Tokens(TimeNs at_ns, DurationNs gap_ns, bool first, int64_t count = 1);
  // The same gap once more, for its class, by an observer that knows whose it is.
  void ClassGap(TimeNs at_ns, DurationNs gap_ns, const Slo& slo, std::string_view slo_class);
  void Ended(const EndedRequest& request);
  // Refused before it was taken, when it came. `why` (may be empty): the first is kept.
  void Rejected(TimeNs arrival_ns, const Slo& slo, std::string_view slo_class, std::string_view why = {});
  // A step of the executor that did not fail; `items`: sequences that had a share.
  void Step(TimeNs end_ns, DurationNs took_ns, int64_t items);
  void Decision(DurationNs took_ns) { decision_ns_.Add(took_ns); }

  int64_t completed() const { return completed_; }
  int64_t failed() const { return failed_; }
  int64_t rejected() const { return rejected_; }
  std::map<std::string, ObjectiveCounts> objectives_by_class() const;
  const Histogram& decision_ns() const { return decision_ns_; }

  // All that was counted; the run lasts from the first arrival to the last end, or as long as its window. Engine
  // figures that are counted elsewhere (EngineStats) are left to their owner.
  RunResult Outcome() const;
  // With what was counted here of the engine: step times, decisions, delays, batch.
  EngineFigures Engine() const;

 private:
  // What is kept of a class beside its counts.
  struct Class {
    explicit Class(bool exact) : ttft_ns(exact), longest_gap_ns(exact), gap_ns(exact), tpot_ns(exact), e2e_ns(exact) {}
    ClassFigures counts;
    LatencyValues ttft_ns, longest_gap_ns, gap_ns, tpot_ns, e2e_ns;
  };
  // Null: the request is of no class and states nothing.
  Class* ClassOf(const Slo& slo, std::string_view name);

  RunWindow window_;
  RunResult::Served served_;  // with a limited window: what ended in it
  int64_t completed_ = 0, failed_ = 0, rejected_ = 0, prompt_tokens_ = 0, completion_tokens_ = 0;
  int64_t steps_ = 0, items_ = 0, arrived_ = 0;
  TimeNs first_come_ns_ = kNever, last_come_ns_ = 0;
  TimeNs first_arrival_ns_ = kNever, last_end_ns_ = 0;
  std::string first_rejection_;
  const bool exact_;
  std::map<std::string, Class, std::less<>> classes_;
  LatencyValues ttft_ns_, normalized_ttft_ns_, gap_ns_, tpot_ns_, e2e_ns_, delay_ns_;
  LatencyValues ttft_error_;  // |predicted - measured| / measured, in millionths
  Histogram step_ns_, decision_ns_;
};

// Whether a request that ended so kept all that it stated.
bool KeptSlo(const EndedRequest& request);

// The object of docs/api.md ("Result"): always every field, null where nothing is known.
Json RunJson(const RunResult& result);
Json SummaryJson(const Summary& summary);
// The same for people, in the columns that they know.
std::string RunTable(const RunResult& result);

}  // namespace tactus::results
