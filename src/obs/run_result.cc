#include "obs/run_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tactus {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kToMs = 1e-6, kToUs = 1e-3, kToSeconds = 1e-9;

template <class T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json OrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json ByCauseJson(const BubbleFigures::ByCause& causes, const char* unit) {
  Json out = Json::object();
  for (const auto& [cause, value] : causes) out[cause + unit] = value;
  return out;
}

Json BubblesJson(const BubbleFigures& b) {
  Json stages = Json::array();
  for (const BubbleFigures::Stage& s : b.stages) {
    Json stage = {{"busy_s", s.busy_s}};
    stage.update(ByCauseJson(s.idle_s, "_s"));
    stages.push_back(std::move(stage));
  }
  return {{"stages", std::move(stages)},
          {"per_request_ms", SummaryJson(b.per_request_ms)},
          {"per_request_mean_ms_by_cause", ByCauseJson(b.per_request_mean_ms, "")}};
}

// Where only a client looked, all of it is null.
void AddEngine(const std::optional<EngineFigures>& figures, Json* out) {
  static constexpr const char* kNames[] = {
      "steps",          "plan_hash",  "preemptions",        "recomputed_tokens",  "swapped_sequences",
      "swapped_blocks", "step_ms",    "decision_us",        "budget_utilization", "kv_utilization",
      "prefix_sharing", "mean_batch", "scheduling_delay_ms"};
  Json& j = *out;
  for (const char* name : kNames) j[name] = nullptr;
  if (!figures) return;
  const EngineFigures& e = *figures;
  j["steps"] = e.steps;
  j["plan_hash"] = fmt::format("{:016x}", e.plan_hash);
  j["preemptions"] = e.preemptions;
  j["recomputed_tokens"] = e.recomputed_tokens;
  j["swapped_sequences"] = e.swapped_sequences;
  j["swapped_blocks"] = e.swapped_blocks;
  j["step_ms"] = SummaryJson(e.step_ms);
  if (e.decision_p50_us) j["decision_us"] = {{"p50", *e.decision_p50_us}, {"p99", OrNull(e.decision_p99_us)}};
  j["budget_utilization"] = OrNull(e.budget_utilization);
  j["kv_utilization"] = OrNull(e.kv_utilization);
  j["prefix_sharing"] = OrNull(e.prefix_sharing);
  j["mean_batch"] = OrNull(e.mean_batch);
  j["scheduling_delay_ms"] = SummaryJson(e.scheduling_delay_ms);
}

void AddSimulated(const SimulatedFigures& s, Json* out) {
  Json& j = *out;
  j["mfu"] = OrNull(s.mfu);
  j["mbu"] = OrNull(s.mbu);
  j["bubbles"] = s.bubbles ? BubblesJson(*s.bubbles) : Json(nullptr);
  j["extrapolation"] = OrNull(s.extrapolation);
  j["clipped_prompts"] = s.clipped_prompts;
  j["cut_outputs"] = s.cut_outputs;
  j["rows_dropped"] = s.rows_dropped;
  j["replicas"] = s.replicas;
}

std::string Number(const std::optional<double>& value, double factor, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value * factor) : std::string("-");
}

std::string Row(const char* title, const Summary& s) {
  std::string row = fmt::format("{:<22}", title);
  for (const double value : {s.mean, s.p50, s.p90, s.p95, s.p99, s.max}) {
    row += s.known ? fmt::format("{:>11.2f}", value) : fmt::format("{:>11}", "-");
  }
  return row + "\n";
}

}  // namespace

ObjectiveCounts& ObjectiveCounts::operator+=(const ObjectiveCounts& other) {
  stated += other.stated;
  kept += other.kept;
  jct_stated += other.jct_stated;
  jct_kept += other.jct_kept;
  return *this;
}

bool KeptSlo(const EndedRequest& r) {
  if (!r.ok) return false;
  if (r.slo.ttft_ns > 0 && (r.ttft_ns < 0 || r.ttft_ns > r.slo.ttft_ns)) return false;
  if (r.slo.tbt_ns > 0 && r.longest_gap_ns > r.slo.tbt_ns) return false;
  return r.slo.jct_ns == 0 || r.done_ns - r.arrival_ns <= r.slo.jct_ns;
}

RunAccumulator::RunAccumulator(bool exact, RunWindow window)
    : window_(window),
      ttft_ns_(exact),
      normalized_ttft_ns_(exact),
      gap_ns_(exact),
      tpot_ns_(exact),
      e2e_ns_(exact),
      delay_ns_(exact) {}

ObjectiveCounts* RunAccumulator::Class(std::string_view name) {
  const auto found = classes_.find(name);
  return found != classes_.end() ? &found->second : &classes_[std::string(name)];
}

void RunAccumulator::Tokens(TimeNs at_ns, DurationNs gap_ns, bool first, int64_t count) {
  if (!window_.limited()) {
    (first ? ttft_ns_ : gap_ns_).Add(gap_ns, count);
  } else if (!first && window_.Holds(at_ns)) {
    gap_ns_.Add(gap_ns, count);  // a first token counts with its request (Ended)
  }
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
  if (r.slo.ttft_ns > 0 || r.slo.tbt_ns > 0 || r.slo.jct_ns > 0) {
    ObjectiveCounts& c = *Class(r.slo_class);
    ++c.stated;
    c.kept += KeptSlo(r);
    c.jct_stated += r.slo.jct_ns > 0;
    c.jct_kept += r.slo.jct_ns > 0 && r.ok && e2e_ns <= r.slo.jct_ns;
  }
  (r.ok ? completed_ : failed_) += 1;
  if (r.delay_ns >= 0) delay_ns_.Add(r.delay_ns);
  if (!r.ok) return;
  prompt_tokens_ += r.prompt_tokens;
  completion_tokens_ += r.completion_tokens;
  e2e_ns_.Add(e2e_ns);
  if (r.ttft_ns < 0) return;
  if (r.prompt_tokens > 0) normalized_ttft_ns_.Add(r.ttft_ns / r.prompt_tokens);
  if (r.completion_tokens > 1) tpot_ns_.Add((e2e_ns - r.ttft_ns) / (r.completion_tokens - 1));
}

void RunAccumulator::Rejected(TimeNs arrival_ns, const Slo& slo, std::string_view slo_class, std::string_view why) {
  if (!window_.Holds(arrival_ns)) return;
  if (rejected_++ == 0) first_rejection_ = why;
  if (slo.ttft_ns <= 0 && slo.tbt_ns <= 0 && slo.jct_ns <= 0) return;
  ObjectiveCounts& c = *Class(slo_class);
  ++c.stated;
  c.jct_stated += slo.jct_ns > 0;
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
  for (const auto& [name, counts] : classes_) {
    r.classes[name] = counts;
    r.objectives += counts;
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
  if (steps_ > 0) e.mean_batch = static_cast<double>(items_) / static_cast<double>(steps_);
  if (decision_ns_.count() > 0) {
    e.decision_p50_us = decision_ns_.Quantile(0.5) * kToUs;
    e.decision_p99_us = decision_ns_.Quantile(0.99) * kToUs;
  }
  return e;
}

Json SummaryJson(const Summary& s) {
  if (!s.known) return nullptr;
  return {{"mean", s.mean}, {"p50", s.p50}, {"p90", s.p90}, {"p95", s.p95}, {"p99", s.p99}, {"max", s.max}};
}

Json RunJson(const RunResult& r) {
  Json out;
  out["duration_s"] = r.duration_s;
  out["measured_from_s"] = OrNull(r.measured_from_s);
  out["requests"] = {
      {"completed", r.completed}, {"failed", r.failed}, {"rejected", r.rejected}, {"unfinished", OrNull(r.unfinished)}};
  out["first_rejection"] = OrNull(r.first_rejection);
  out["request_throughput"] = OrNull(r.request_throughput());
  out["input_token_throughput"] = OrNull(r.input_token_throughput());
  out["output_token_throughput"] = OrNull(r.output_token_throughput());
  out["goodput"] = OrNull(r.goodput());
  out["slo_attainment"] = OrNull(r.objectives.slo_attainment());
  out["jct_attainment"] = OrNull(r.objectives.jct_attainment());
  out["ttft_ms"] = SummaryJson(r.ttft_ms);
  out["normalized_ttft_ms"] = SummaryJson(r.normalized_ttft_ms);
  out["tbt_ms"] = SummaryJson(r.tbt_ms);
  out["tpot_ms"] = SummaryJson(r.tpot_ms);
  out["e2e_ms"] = SummaryJson(r.e2e_ms);
  AddEngine(r.engine, &out);
  Json classes = Json::object();
  for (const auto& [name, c] : r.classes) {
    classes[name] = {{"stated", c.stated},
                     {"kept", c.kept},
                     {"slo_attainment", OrNull(c.slo_attainment())},
                     {"jct_attainment", OrNull(c.jct_attainment())}};
  }
  out["classes"] = std::move(classes);
  out["cached_prompt_tokens"] = OrNull(r.cached_prompt_tokens);
  out["request_rate_asked"] = OrNull(r.request_rate_asked);
  out["request_rate_achieved"] = OrNull(r.request_rate_achieved);
  out["concurrency"] = OrNull(r.concurrency);
  if (r.simulated) AddSimulated(*r.simulated, &out);
  return out;
}

std::string ToJson(const RunResult& result) {
  return RunJson(result).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string RunTable(const RunResult& r) {
  std::string out = fmt::format("Requests: {} completed, {} failed, {} rejected in {:.2f} s\n", r.completed, r.failed,
                                r.rejected, r.duration_s);
  if (r.served) {
    out += fmt::format(
        "Measured from {} s after the first arrival: requests that came then; throughput: the {} that "
        "ended then\n",
        Number(r.measured_from_s, 1, "{:.2f}"), r.served->requests);
  }
  out += fmt::format("Request rate asked / achieved: {} / {} per s\n", Number(r.request_rate_asked, 1, "{:.3f}"),
                     Number(r.request_rate_achieved, 1, "{:.3f}"));
  out += fmt::format(
      "Throughput: {} requests/s, {} input tokens/s, {} output tokens/s; goodput {} requests/s, attainment {}\n",
      Number(r.request_throughput(), 1, "{:.3f}"), Number(r.input_token_throughput(), 1, "{:.1f}"),
      Number(r.output_token_throughput(), 1, "{:.1f}"), Number(r.goodput(), 1, "{:.3f}"),
      Number(r.objectives.slo_attainment(), 1, "{:.3f}"));
  out +=
      fmt::format("\n{:<22}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}\n", "", "mean", "median", "P90", "P95", "P99", "max");
  out += Row("TTFT (ms)", r.ttft_ms) + Row("TPOT (ms)", r.tpot_ms) + Row("ITL, every gap (ms)", r.tbt_ms) +
         Row("E2EL (ms)", r.e2e_ms) + Row("TTFT / prompt token", r.normalized_ttft_ms);
  if (r.engine) {
    const EngineFigures& e = *r.engine;
    out += Row("Scheduling delay (ms)", e.scheduling_delay_ms);
    out += fmt::format(
        "\nSteps: {}, mean batch {}, budget used {} %, KV used {} %, preemptions {} ({} tokens recomputed)\n", e.steps,
        Number(e.mean_batch, 1, "{:.1f}"), Number(e.budget_utilization, 100, "{:.1f}"),
        Number(e.kv_utilization, 100, "{:.1f}"), e.preemptions, e.recomputed_tokens);
    out +=
        fmt::format("Prefix sharing {} %, plan hash {:016x}\n", Number(e.prefix_sharing, 100, "{:.1f}"), e.plan_hash);
  }
  if (r.simulated) {
    const SimulatedFigures& s = *r.simulated;
    out += fmt::format("MFU {} %, MBU {} %\n", Number(s.mfu, 100, "{:.1f}"), Number(s.mbu, 100, "{:.1f}"));
    if (s.bubbles && s.bubbles->per_request_ms.known) {
      out += fmt::format("Bubbles per request (ms): median {:.2f}, P99 {:.2f}\n", s.bubbles->per_request_ms.p50,
                         s.bubbles->per_request_ms.p99);
    }
    if (!s.extrapolation.empty()) out += "Beyond what was measured: " + s.extrapolation + "\n";
  }
  if (!r.first_rejection.empty()) out += "First rejection: " + r.first_rejection + "\n";
  return out;
}

}  // namespace tactus
