// From the events of a run to its result object: one definition of every metric for every observer (the engine's
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

// Clients choose class names, so their number is bounded; further ones are counted together as "other".
inline constexpr size_t kMostClasses = 32;

// A request that was accepted and has ended.
struct EndedRequest {
  bool ok = false;  // complete answer: no error, not cancelled
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;       // of all choices
  DurationNs delay_ns = -1;            // arrival to its first step; -1: never, or unknown to the observer
  DurationNs ttft_ns = -1;             // arrival to first token; -1: no token
  DurationNs predicted_ttft_ns = -1;   // predicted by the gate on arrival; -1: none
  TimeNs arrival_ns = 0, done_ns = 0;  // done_ns: its end
  DurationNs longest_gap_ns = 0;       // between two tokens of one choice
  int64_t gaps = 0, late_gaps = 0;     // of all choices; late: longer than the TBT objective
  Slo slo;
  std::string_view slo_class;
};

// Thread rule: none; callers that share it lock.
class RunAccumulator {
 public:
  // `exact`: keeps every latency, for percentiles without bucket error; memory grows with the run. `window`: the
  // measured part. With a limited window, events must be passed in time order, arrivals first at equal times.
  explicit RunAccumulator(bool exact = false, RunWindow window = {});

  // Counts an arriving request, whatever its outcome.
  void Arrived(TimeNs arrival_ns) {
    ++arrived_;
    first_come_ns_ = std::min(first_come_ns_, arrival_ns);
    last_come_ns_ = std::max(last_come_ns_, arrival_ns);
    window_.Arrived(arrival_ns);
  }
  // `count` tokens at `at_ns`, `gap_ns` after the previous token of their streams; first: after their requests'
  // arrival.
  void Tokens(TimeNs at_ns, DurationNs gap_ns, bool first, int64_t count = 1);
  // Adds the gap to its class too; for observers that know the request of each gap.
  void ClassGap(TimeNs at_ns, DurationNs gap_ns, const Slo& slo, std::string_view slo_class);
  void Ended(const EndedRequest& request);
  // A request that was rejected on arrival. `why` (may be empty): the first reason is kept.
  void Rejected(TimeNs arrival_ns, const Slo& slo, std::string_view slo_class, std::string_view why = {});
  // A step of the executor that did not fail; `items`: sequences in the step.
  void Step(TimeNs end_ns, DurationNs took_ns, int64_t items);
  void Decision(DurationNs took_ns) { decision_ns_.Add(took_ns); }

  int64_t completed() const { return completed_; }
  int64_t failed() const { return failed_; }
  int64_t rejected() const { return rejected_; }
  std::map<std::string, ObjectiveCounts> objectives_by_class() const;
  const Histogram& decision_ns() const { return decision_ns_; }

  // All counts; the run lasts from the first arrival to the last end, or as long as its window. Engine figures that are
  // counted elsewhere (EngineStats) are set by the caller.
  RunResult Outcome() const;
  // The engine figures counted here: step times, decisions, delays, batch.
  EngineFigures Engine() const;

 private:
  // Values of a class besides its counts.
  struct Class {
    explicit Class(bool exact) : ttft_ns(exact), longest_gap_ns(exact), gap_ns(exact), tpot_ns(exact), e2e_ns(exact) {}
    ClassFigures counts;
    LatencyValues ttft_ns, longest_gap_ns, gap_ns, tpot_ns, e2e_ns;
  };
  // Null: the request has no class and no objectives.
  Class* ClassOf(const Slo& slo, std::string_view name);

  RunWindow window_;
  RunResult::Served served_;  // with a limited window: what ended within it
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

// Whether an ended request met all its objectives.
bool KeptSlo(const EndedRequest& request);

// The object of docs/reference/api.md ("Result"): always every field, null if unknown.
Json RunJson(const RunResult& result);
Json SummaryJson(const Summary& summary);
// The same as text, with the usual columns.
std::string RunTable(const RunResult& result);

}  // namespace tactus::results
