// The result object of a simulation: the engine's own, and what only a simulator knows.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "cost/cost_model.h"
#include "cost/step_table.h"
#include "sim/simulator_impl.h"

namespace tactus {
namespace {

using Json = nlohmann::ordered_json;
constexpr double kToMs = 1e-6;

Json SummaryJson(const Summary& s) {
  if (!s.known) return nullptr;
  return {{"mean", s.mean}, {"p50", s.p50}, {"p90", s.p90}, {"p95", s.p95}, {"p99", s.p99}, {"max", s.max}};
}

Json BubblesJson(const std::vector<const SimExecutorFigures*>& all) {
  const size_t stages = all[0]->stages.size();
  if (stages < 2) return nullptr;
  Json by_stage = Json::array();
  Histogram per_request;
  std::array<DurationNs, kNumBubbleCauses> sums{};
  for (const SimExecutorFigures* f : all) {
    per_request.Merge(f->request_bubble_ns);
    for (size_t c = 0; c < kNumBubbleCauses; ++c) sums[c] += f->request_bubble_sum_ns[c];
  }
  Json mean_by_cause = Json::object();
  for (size_t c = 0; c < kNumBubbleCauses; ++c) {
    if (static_cast<BubbleCause>(c) == BubbleCause::kStarved || per_request.count() == 0) continue;
    mean_by_cause[BubbleCauseName(static_cast<BubbleCause>(c))] =
        static_cast<double>(sums[c]) * kToMs / static_cast<double>(per_request.count());
  }
  for (size_t k = 0; k < stages; ++k) {
    Json stage;
    DurationNs busy = 0;
    std::array<DurationNs, kNumBubbleCauses> idle{};
    for (const SimExecutorFigures* f : all) {
      busy += f->stages[k].busy_ns;
      for (size_t c = 0; c < kNumBubbleCauses; ++c) idle[c] += f->stages[k].bubble_ns[c];
    }
    stage["busy_s"] = static_cast<double>(busy) * 1e-9;
    for (size_t c = 0; c < kNumBubbleCauses; ++c) {
      stage[std::string(BubbleCauseName(static_cast<BubbleCause>(c))) + "_s"] = static_cast<double>(idle[c]) * 1e-9;
    }
    by_stage.push_back(std::move(stage));
  }
  return {{"stages", std::move(by_stage)},
          {"per_request_ms", SummaryJson(per_request.Summarize(kToMs))},
          {"per_request_mean_ms_by_cause", std::move(mean_by_cause)}};
}

// How far the step times in use were asked beyond what was measured: a profile's range where they are a profile's, even
// if a cost model meters beside it.
Json ExtrapolationJson(const SimulationConfig& config, const std::vector<const SimExecutorFigures*>& all) {
  const auto* profile = dynamic_cast<const cost::StepProfile*>(config.step_time);
  if (profile == nullptr && config.meter == nullptr) return nullptr;
  ChunkShape chunk;
  StepShape most;
  for (const SimExecutorFigures* f : all) {
    chunk.tokens = std::max(chunk.tokens, f->most_chunk.tokens);
    chunk.context_tokens = std::max(chunk.context_tokens, f->most_chunk.context_tokens);
    most.decodes = std::max(most.decodes, f->most_decodes);
    most.decode_context_tokens = std::max(most.decode_context_tokens, f->most_decode_context_tokens);
    most.logit_rows = std::max(most.logit_rows, f->most_logit_rows);
  }
  if (chunk.tokens > 0) most.chunks = {&chunk, 1};
  const std::string text = profile != nullptr ? profile->Extrapolation(most) : config.meter->Extrapolation(most);
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

EngineStats Simulation::Impl::Merged() const {
  EngineStats sum;
  double budget = 0, kv = 0;
  for (const SimReplica& r : replicas) {
    const EngineStats s = r.loop().Stats();
    sum.running += s.running;
    sum.waiting += s.waiting;
    sum.kv_blocks_total += s.kv_blocks_total;
    sum.kv_blocks_in_use += s.kv_blocks_in_use;
    sum.kv_blocks_cached += s.kv_blocks_cached;
    sum.steps += s.steps;
    sum.prompt_tokens += s.prompt_tokens;
    sum.generation_tokens += s.generation_tokens;
    sum.preemptions += s.preemptions;
    sum.recomputed_tokens += s.recomputed_tokens;
    sum.swap_blocks_total += s.swap_blocks_total;
    sum.swap_blocks_used += s.swap_blocks_used;
    sum.swapped_sequences += s.swapped_sequences;
    sum.swapped_out_blocks += s.swapped_out_blocks;
    sum.swapped_in_blocks += s.swapped_in_blocks;
    sum.prefix_query_tokens += s.prefix_query_tokens;
    sum.prefix_hit_tokens += s.prefix_hit_tokens;
    sum.finished_stop += s.finished_stop;
    sum.finished_length += s.finished_length;
    sum.finished_cancelled += s.finished_cancelled;
    sum.finished_error += s.finished_error;
    // Replicas are alike, so steps weigh alike.
    budget += s.budget_utilization * static_cast<double>(s.steps);
    kv += s.kv_utilization * static_cast<double>(s.steps);
    sum.plan_hash = replicas.size() == 1 ? s.plan_hash : MixHash(sum.plan_hash, s.plan_hash);
  }
  if (sum.steps > 0) {
    sum.budget_utilization = budget / static_cast<double>(sum.steps);
    sum.kv_utilization = kv / static_cast<double>(sum.steps);
  }
  return sum;
}

std::string Simulation::ResultJson() const {
  const Impl& s = *impl_;
  const EngineStats stats = s.Merged();
  const DurationNs duration_ns = std::max<DurationNs>(0, s.last_end_ns - first_arrival_ns());
  Json out = Json::parse(s.metrics->ResultJson(stats, duration_ns));
  out["requests"]["unfinished"] = s.workload.count() - s.ended;
  if (s.exact) {
    out["ttft_ms"] = SummaryJson(s.exact->ttft_ns.Summarize(kToMs));
    out["normalized_ttft_ms"] = SummaryJson(s.exact->normalized_ttft_ns.Summarize(kToMs));
    out["tbt_ms"] = SummaryJson(s.exact->gap_ns.Summarize(kToMs));
    out["tpot_ms"] = SummaryJson(s.exact->tpot_ns.Summarize(kToMs));
    out["e2e_ms"] = SummaryJson(s.exact->e2e_ns.Summarize(kToMs));
    out["scheduling_delay_ms"] = SummaryJson(s.exact->delay_ns.Summarize(kToMs));
  }
  out["step_ms"] = SummaryJson(s.step_ns.Summarize(kToMs));
  out["prefix_sharing"] =
      stats.prefix_query_tokens > 0
          ? Json(static_cast<double>(stats.prefix_hit_tokens) / static_cast<double>(stats.prefix_query_tokens))
          : Json(nullptr);
  std::vector<const SimExecutorFigures*> figures;
  double flops = 0, bytes = 0;
  int64_t items = 0;
  for (const auto& r : s.replicas) {
    figures.push_back(&r.executor->figures());
    items += figures.back()->items;
    flops += figures.back()->flops;
    bytes += figures.back()->bytes;
  }
  out["mean_batch"] =
      stats.steps > 0 ? Json(static_cast<double>(items) / static_cast<double>(stats.steps)) : Json(nullptr);
  const double device_s = static_cast<double>(duration_ns) * 1e-9 * static_cast<double>(s.replicas.size());
  const bool metered = s.config.meter != nullptr && device_s > 0;
  out["mfu"] = metered ? Json(flops / (s.config.meter->peak_flops() * device_s)) : Json(nullptr);
  out["mbu"] = metered ? Json(bytes / (s.config.meter->peak_bandwidth() * device_s)) : Json(nullptr);
  out["bubbles"] = BubblesJson(figures);
  out["extrapolation"] = ExtrapolationJson(s.config, figures);
  const double issuing_s = static_cast<double>(s.last_arrival_ns - first_arrival_ns()) * 1e-9;
  out["request_rate_achieved"] =
      s.issued > 1 && issuing_s > 0 ? Json(static_cast<double>(s.issued - 1) / issuing_s) : Json(nullptr);
  out["clipped_prompts"] = s.clipped_prompts;
  out["cut_outputs"] = s.cut_outputs;
  out["rows_dropped"] = s.workload.rows_dropped();
  out["first_rejection"] = s.refused > 0 ? Json(s.first_refusal) : Json(nullptr);
  out["replicas"] = s.replicas.size();
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tactus
