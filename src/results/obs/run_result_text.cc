// The result object as JSON and as a table.
#include <fmt/format.h>

#include "base/json.h"
#include "results/obs/run_result.h"

namespace tactus::results {
namespace {

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

// With only a client as observer, all engine fields are null.
void AddEngine(const std::optional<EngineFigures>& figures, Json* out) {
  static constexpr const char* kNames[] = {"steps",
                                           "plan_hash",
                                           "preemptions",
                                           "recomputed_tokens",
                                           "swapped_sequences",
                                           "swapped_blocks",
                                           "step_ms",
                                           "decision_us",
                                           "budget_utilization",
                                           "kv_utilization",
                                           "prefix_sharing",
                                           "mean_batch",
                                           "scheduling_delay_ms",
                                           "ttft_prediction_error",
                                           "draft_tokens",
                                           "accepted_draft_tokens"};
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
  j["draft_tokens"] = e.draft_tokens;
  j["accepted_draft_tokens"] = e.accepted_draft_tokens;
  j["step_ms"] = SummaryJson(e.step_ms);
  if (e.decision_p50_us) j["decision_us"] = {{"p50", *e.decision_p50_us}, {"p99", OrNull(e.decision_p99_us)}};
  j["budget_utilization"] = OrNull(e.budget_utilization);
  j["kv_utilization"] = OrNull(e.kv_utilization);
  j["prefix_sharing"] = OrNull(e.prefix_sharing);
  j["mean_batch"] = OrNull(e.mean_batch);
  j["scheduling_delay_ms"] = SummaryJson(e.scheduling_delay_ms);
  j["ttft_prediction_error"] = SummaryJson(e.ttft_prediction_error);
}

double Ms(int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

Json ObjectivesJson(const ObjectiveCounts& c);

void AddAttainment(const ObjectiveCounts& c, Json* out) {
  Json& j = *out;
  j["objectives"] = ObjectivesJson(c);
  j["slo_attainment"] = OrNull(c.slo_attainment());
  j["ttft_attainment"] = OrNull(c.ttft.attainment());
  j["tbt_attainment"] = OrNull(c.tbt.attainment());
  j["jct_attainment"] = OrNull(c.jct.attainment());
  j["step_attainment"] = OrNull(c.gaps.attainment());
}

Json ClassJson(const ClassFigures& c) {
  Json j = {{"completed", c.completed},
            {"failed", c.failed},
            {"rejected", c.rejected},
            {"stated", c.stated},
            {"kept", c.kept}};
  AddAttainment(c, &j);
  j["ttft_ms"] = SummaryJson(c.ttft_ms);
  j["longest_gap_ms"] = SummaryJson(c.longest_gap_ms);
  j["tbt_ms"] = SummaryJson(c.tbt_ms);
  j["tpot_ms"] = SummaryJson(c.tpot_ms);
  j["e2e_ms"] = SummaryJson(c.e2e_ms);
  return j;
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
  j["scaling"] = nullptr;
  if (const auto& c = s.scaling) {
    j["scaling"] = {{"least", c->least},
                    {"most", c->most},
                    {"started", c->started},
                    {"drained", c->drained},
                    {"mean_replicas", c->mean_replicas}};
  }
  j["migrations"] = nullptr;
  if (const auto& m = s.migrations)
    j["migrations"] = {{"moved", m->moved},     {"without_kv", m->without_kv}, {"failed", m->failed},
                       {"tokens", m->tokens},   {"ended", m->ended},           {"outgrew", m->outgrew},
                       {"no_room", m->no_room}, {"refused", m->refused}};
  j["objectives_below_a_step"] = s.objectives_below_a_step;
  j["shortest_step_ms"] = s.shortest_step_ms;
}

Json PlanJson(const PlanFigures& p) {
  return {{"order", p.order},
          {"requests", p.requests},
          {"sample", p.sample},
          {"key_tokens", p.key_tokens},
          {"optimal_sharing", p.optimal_sharing},
          {"planned_sharing", p.planned_sharing},
          {"achieved_sharing", OrNull(p.achieved_sharing)},
          {"density", p.density},
          {"bound_s", OrNull(p.bound_s)},
          {"practical_bound_s", OrNull(p.practical_bound_s)},
          {"share_of_bound", OrNull(p.share_of_bound)},
          {"share_of_practical_bound", OrNull(p.share_of_practical_bound)},
          {"reading_s", p.reading_s},
          {"planning_s", p.planning_s}};
}

std::string Number(const std::optional<double>& value, double factor, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value * factor) : std::string("-");
}

Json ObjectivesJson(const ObjectiveCounts& c) {
  const auto stated = [](const KeptCount& of) {
    return of.most_ns == 0 ? Json(nullptr) : Json({{"least", Ms(of.least_ns)}, {"most", Ms(of.most_ns)}});
  };
  return {{"ttft_ms", stated(c.ttft)}, {"tbt_ms", stated(c.tbt)}, {"jct_ms", stated(c.jct)}};
}

// The stated objectives: "TTFT 500 ms, gap 40 to 90 ms"; empty: none.
std::string ObjectivesText(const ObjectiveCounts& c) {
  std::string text;
  for (const auto& [name, of] : {std::pair{"TTFT", &c.ttft}, {"gap", &c.tbt}, {"total", &c.jct}}) {
    if (of->most_ns == 0) continue;
    text += fmt::format("{}{} {:.6g}", text.empty() ? "" : ", ", name, Ms(of->least_ns));
    if (of->most_ns > of->least_ns) text += fmt::format(" to {:.6g}", Ms(of->most_ns));
    text += " ms";
  }
  return text;
}

std::string ClassTable(const RunResult& r) {
  std::string out =
      fmt::format("\n{:<22}{:>9}{:>7}{:>7}{:>7}{:>7}{:>7}{:>9}{:>9}{:>12}{:>9}{:>10}{:>9}\n", "Class (ms)", "requests",
                  "kept", "TTFT", "gap", "total", "gaps", "TTFT P50", "P99", "longest gap", "P99", "total P50", "P99");
  const auto latency = [](const Summary& s, int width) {
    return s.known ? fmt::format("{:>{}.1f}{:>9.1f}", s.p50, width, s.p99)
                   : fmt::format("{:>{}}{:>9}", "-", width, "-");
  };
  for (const auto& [name, c] : r.classes) {
    out += fmt::format("{:<22}{:>9}", name.empty() ? "(no name)" : name, c.completed + c.failed + c.rejected);
    for (const auto& share :
         {c.slo_attainment(), c.ttft.attainment(), c.tbt.attainment(), c.jct.attainment(), c.gaps.attainment()}) {
      out += fmt::format("{:>7}", Number(share, 1, "{:.3f}"));
    }
    out += latency(c.ttft_ms, 9) + latency(c.longest_gap_ms, 12) + latency(c.e2e_ms, 10) + "\n";
  }
  return out;
}

std::string SummaryRow(const char* title, const Summary& s) {
  std::string row = fmt::format("{:<22}", title);
  for (const double value : {s.mean, s.p50, s.p90, s.p95, s.p99, s.max}) {
    row += s.known ? fmt::format("{:>11.2f}", value) : fmt::format("{:>11}", "-");
  }
  return row + "\n";
}

}  // namespace

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
  AddAttainment(r.objectives, &out);
  out["ttft_ms"] = SummaryJson(r.ttft_ms);
  out["normalized_ttft_ms"] = SummaryJson(r.normalized_ttft_ms);
  out["tbt_ms"] = SummaryJson(r.tbt_ms);
  out["tpot_ms"] = SummaryJson(r.tpot_ms);
  out["e2e_ms"] = SummaryJson(r.e2e_ms);
  AddEngine(r.engine, &out);
  Json classes = Json::object();
  for (const auto& [name, c] : r.classes) classes[name] = ClassJson(c);
  out["classes"] = std::move(classes);
  out["cached_prompt_tokens"] = OrNull(r.cached_prompt_tokens);
  out["request_rate_asked"] = OrNull(r.request_rate_asked);
  out["request_rate_achieved"] = OrNull(r.request_rate_achieved);
  out["concurrency"] = OrNull(r.concurrency);
  if (r.simulated) AddSimulated(*r.simulated, &out);
  if (r.plan) out["plan"] = PlanJson(*r.plan);
  return out;
}

std::string RunTable(const RunResult& r) {
  std::string out = fmt::format("Requests: {} completed, {} failed, {} rejected in {:.2f} s\n", r.completed, r.failed,
                                r.rejected, r.duration_s);
  if (r.served) {
    out += fmt::format(
        "Measured from {} s after the first arrival: requests that arrived in that time; throughput: the {} that ended "
        "in it\n",
        Number(r.measured_from_s, 1, "{:.2f}"), r.served->requests);
  }
  out += fmt::format("Request rate requested / achieved: {} / {} per s\n", Number(r.request_rate_asked, 1, "{:.3f}"),
                     Number(r.request_rate_achieved, 1, "{:.3f}"));
  out += fmt::format(
      "Throughput: {} requests/s, {} input tokens/s, {} output tokens/s; goodput {} requests/s, attainment {}\n",
      Number(r.request_throughput(), 1, "{:.3f}"), Number(r.input_token_throughput(), 1, "{:.1f}"),
      Number(r.output_token_throughput(), 1, "{:.1f}"), Number(r.goodput(), 1, "{:.3f}"),
      Number(r.objectives.slo_attainment(), 1, "{:.3f}"));
  if (const std::string text = ObjectivesText(r.objectives); !text.empty()) out += "Objectives: " + text + "\n";
  out += fmt::format("\n{:<22}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}\n", "Times (ms)", "mean", "median", "P90", "P95",
                     "P99", "max");
  out += SummaryRow("TTFT", r.ttft_ms) + SummaryRow("gap", r.tbt_ms) + SummaryRow("gap, request's mean", r.tpot_ms) +
         SummaryRow("total", r.e2e_ms) + SummaryRow("TTFT / prompt token", r.normalized_ttft_ms);
  if (r.engine) {
    const EngineFigures& e = *r.engine;
    out += SummaryRow("delay to first step", e.scheduling_delay_ms);
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
    if (!s.extrapolation.empty()) out += "Outside the measured range: " + s.extrapolation + "\n";
  }
  if (r.plan) {
    const PlanFigures& p = *r.plan;
    out += fmt::format(
        "Plan {}: {} requests, {} of them a sample, in {:.2f} s; sharing {:.1f} % at best, {:.1f} % in this order; {} "
        "% "
        "of the bound, {} % of the practical one\n",
        p.order, p.requests, p.sample, p.planning_s, 100 * p.optimal_sharing, 100 * p.planned_sharing,
        Number(p.share_of_bound, 100, "{:.1f}"), Number(p.share_of_practical_bound, 100, "{:.1f}"));
  }
  if (!r.classes.empty()) out += ClassTable(r);
  if (r.simulated && r.simulated->objectives_below_a_step > 0) {
    out += fmt::format("{} requests have an objective below the shortest step, {:.3f} ms: it cannot be met\n",
                       r.simulated->objectives_below_a_step, r.simulated->shortest_step_ms);
  }
  if (!r.first_rejection.empty()) out += "First rejection: " + r.first_rejection + "\n";
  return out;
}

}  // namespace tactus::results

namespace tactus {

std::string ToJson(const RunResult& result) {
  return results::RunJson(result).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tactus
