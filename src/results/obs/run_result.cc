#include "results/obs/run_result.h"

#include <algorithm>
#include <cmath>

namespace tactus::results {
namespace {

constexpr double kToMs = 1e-6, kToUs = 1e-3, kToSeconds = 1e-9;

bool KeptTtft(const EndedRequest& r) {
  return r.slo.ttft_ns == 0 || (r.ttft_ns >= 0 && r.ttft_ns <= r.slo.ttft_ns);
}
bool KeptTbt(const EndedRequest& r) {
  return r.slo.tbt_ns == 0 || r.longest_gap_ns <= r.slo.tbt_ns;
}
bool KeptJct(const EndedRequest& r) {
  return r.slo.jct_ns == 0 || r.done_ns - r.arrival_ns <= r.slo.jct_ns;
}

void CountObjectives(const EndedRequest& r, ObjectiveCounts* c) {
  if (!r.slo.any()) return;
  const auto count = [&r](int64_t objective_ns, bool kept, KeptCount* of) {
    if (objective_ns <= 0) return;
    *of += {.stated = 1, .kept = r.ok && kept, .least_ns = objective_ns, .most_ns = objective_ns};
  };
  ++c->stated;
  c->kept += KeptSlo(r);
  count(r.slo.ttft_ns, KeptTtft(r), &c->ttft);
  count(r.slo.tbt_ns, KeptTbt(r), &c->tbt);
  count(r.slo.jct_ns, KeptJct(r), &c->jct);
  if (r.slo.tbt_ns > 0) c->gaps += {.stated = r.gaps, .kept = r.gaps - r.late_gaps};
}

}  // namespace
}  // namespace tactus::results

namespace tactus {

ObjectiveCounts& ObjectiveCounts::operator+=(const ObjectiveCounts& other) {
  stated += other.stated;
  kept += other.kept;
  ttft += other.ttft;
  tbt += other.tbt;
  jct += other.jct;
  gaps += other.gaps;
  return *this;
}

}  // namespace tactus

namespace tactus::results {

bool KeptSlo(const EndedRequest& r) {
  return r.ok && KeptTtft(r) && KeptTbt(r) && KeptJct(r);
}

RunAccumulator::RunAccumulator(bool exact, RunWindow window)
    : window_(window),
      exact_(exact),
      ttft_ns_(exact),
      normalized_ttft_ns_(exact),
      gap_ns_(exact),
      tpot_ns_(exact),
      e2e_ns_(exact),
      delay_ns_(exact),
      ttft_error_(exact) {}

RunAccumulator::Class* RunAccumulator::ClassOf(const Slo& slo, std::string_view name) {
  if (name.empty() && !slo.any()) return nullptr;
  auto found = classes_.find(name);
  if (found != classes_.end()) return &found->second;
  if (classes_.size() >= kMostClasses) name = "other";
  return &classes_.try_emplace(std::string(name), exact_).first->second;
}

std::map<std::string, ObjectiveCounts> RunAccumulator::objectives_by_class() const {
  std::map<std::string, ObjectiveCounts> counts;
  for (const auto& [name, c] : classes_) counts.emplace(name, c.counts);
  return counts;
}

void RunAccumulator::Tokens(TimeNs at_ns, DurationNs gap_ns, bool first, int64_t count) {
  if (!window_.limited()) {
    (first ? ttft_ns_ : gap_ns_).Add(gap_ns, count);
  } else if (!first && window_.Holds(at_ns)) {
    gap_ns_.Add(gap_ns, count);  // first tokens count with their request (Ended)
  }
}

void RunAccumulator::ClassGap(TimeNs at_ns, DurationNs gap_ns, const Slo& slo, std::string_view slo_class) {
  if (!window_.Holds(at_ns)) return;
  if (Class* c = ClassOf(slo, slo_class); c != nullptr) c->gap_ns.Add(gap_ns);
}

void RunAccumulator::Ended(const EndedRequest& r) {
  const DurationNs e2e_ns = r.done_ns - r.arrival_ns;
  first_arrival_ns_ = std::min(first_arrival_ns_, r.arrival_ns);
  last_end_ns_ = std::max(last_end_ns_, r.done_ns);
  if (window_.limited()) {
    if (r.ok && window_.Holds(r.done_ns)) {
      ++served_.requests;
      served_.prompt_tokens += r.prompt_tokens;
      served_.output_tokens += r.completion_tokens;
    }
    if (!window_.Holds(r.arrival_ns)) return;
    if (r.ttft_ns >= 0) ttft_ns_.Add(r.ttft_ns);
  }
  Class* c = ClassOf(r.slo, r.slo_class);
  if (c != nullptr) {
    CountObjectives(r, &c->counts);
    (r.ok ? c->counts.completed : c->counts.failed) += 1;
  }
  (r.ok ? completed_ : failed_) += 1;
  if (r.delay_ns >= 0) delay_ns_.Add(r.delay_ns);
  if (r.predicted_ttft_ns >= 0 && r.ttft_ns > 0) {
    ttft_error_.Add(std::llround(1e6 * static_cast<double>(std::abs(r.predicted_ttft_ns - r.ttft_ns)) /
                                 static_cast<double>(r.ttft_ns)));
  }
  if (!r.ok) return;
  prompt_tokens_ += r.prompt_tokens;
  completion_tokens_ += r.completion_tokens;
  e2e_ns_.Add(e2e_ns);
  if (c != nullptr) c->e2e_ns.Add(e2e_ns);
  if (r.ttft_ns < 0) return;
  if (c != nullptr) c->ttft_ns.Add(r.ttft_ns);
  if (r.prompt_tokens > 0) normalized_ttft_ns_.Add(r.ttft_ns / r.prompt_tokens);
  if (r.completion_tokens <= 1) return;
  const DurationNs tpot_ns = (e2e_ns - r.ttft_ns) / (r.completion_tokens - 1);
  tpot_ns_.Add(tpot_ns);
  if (c == nullptr) return;
  c->tpot_ns.Add(tpot_ns);
  c->longest_gap_ns.Add(r.longest_gap_ns);
}

void RunAccumulator::Rejected(TimeNs arrival_ns, const Slo& slo, std::string_view slo_class, std::string_view why) {
  if (!window_.Holds(arrival_ns)) return;
  if (rejected_++ == 0) first_rejection_ = why;
  Class* c = ClassOf(slo, slo_class);
  if (c == nullptr) return;
  ++c->counts.rejected;
  EndedRequest nothing;
  nothing.slo = slo;
  CountObjectives(nothing, &c->counts);
}

void RunAccumulator::Step(TimeNs end_ns, DurationNs took_ns, int64_t items) {
  if (!window_.Holds(end_ns)) return;
  step_ns_.Add(took_ns);
  ++steps_;
  items_ += items;
}

RunResult RunAccumulator::Outcome() const {
  RunResult r;
  r.duration_s =
      static_cast<double>(std::max<DurationNs>(0, last_end_ns_ - std::min(first_arrival_ns_, last_end_ns_))) *
      kToSeconds;
  if (window_.limited()) {
    r.duration_s = static_cast<double>(window_.LengthNs(std::max(last_come_ns_, last_end_ns_))) * kToSeconds;
    r.measured_from_s = static_cast<double>(window_.FromNs()) * kToSeconds;
    r.served = served_;
  }
  r.completed = completed_;
  r.failed = failed_;
  r.rejected = rejected_;
  r.first_rejection = first_rejection_;
  r.prompt_tokens = prompt_tokens_;
  r.output_tokens = completion_tokens_;
  const double coming_s = static_cast<double>(last_come_ns_ - first_come_ns_) * kToSeconds;
  if (arrived_ > 1 && coming_s > 0) r.request_rate_achieved = static_cast<double>(arrived_ - 1) / coming_s;
  for (const auto& [name, c] : classes_) {
    ClassFigures& f = r.classes[name] = c.counts;
    f.ttft_ms = c.ttft_ns.Summarize(kToMs);
    f.longest_gap_ms = c.longest_gap_ns.Summarize(kToMs);
    f.tbt_ms = c.gap_ns.Summarize(kToMs);
    f.tpot_ms = c.tpot_ns.Summarize(kToMs);
    f.e2e_ms = c.e2e_ns.Summarize(kToMs);
    r.objectives += c.counts;
  }
  r.ttft_ms = ttft_ns_.Summarize(kToMs);
  r.normalized_ttft_ms = normalized_ttft_ns_.Summarize(kToMs);
  r.tbt_ms = gap_ns_.Summarize(kToMs);
  r.tpot_ms = tpot_ns_.Summarize(kToMs);
  r.e2e_ms = e2e_ns_.Summarize(kToMs);
  return r;
}

EngineFigures RunAccumulator::Engine() const {
  EngineFigures e;
  e.step_ms = step_ns_.Summarize(kToMs);
  e.scheduling_delay_ms = delay_ns_.Summarize(kToMs);
  e.ttft_prediction_error = ttft_error_.Summarize(1e-6);
  if (steps_ > 0) e.mean_batch = static_cast<double>(items_) / static_cast<double>(steps_);
  if (decision_ns_.count() > 0) {
    e.decision_p50_us = decision_ns_.Quantile(0.5) * kToUs;
    e.decision_p99_us = decision_ns_.Quantile(0.99) * kToUs;
  }
  return e;
}

}  // namespace tactus::results
