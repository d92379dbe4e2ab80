// The result object of a simulation: the engine's result and what only a simulator knows.
#include <algorithm>
#include <optional>

#include "base/hash.h"
#include "cost/cost_model.h"
#include "sim/simulator/simulator_impl.h"

namespace tactus::sim {
namespace {

constexpr double kToMs = 1e-6;

BubbleFigures::ByCause NamedSeconds(const IdleByCause& ns) {
  BubbleFigures::ByCause out;
  for (size_t c = 0; c < kNumBubbleCauses; ++c) {
    out.emplace_back(BubbleCauseName(static_cast<BubbleCause>(c)), static_cast<double>(ns[c]) * 1e-9);
  }
  return out;
}

std::optional<BubbleFigures> Bubbles(const std::vector<const SimExecutorFigures*>& all) {
  const size_t stages = all[0]->stages.size();
  if (stages < 2) return std::nullopt;
  BubbleFigures out;
  results::Histogram per_request;
  IdleByCause sums{};
  for (const SimExecutorFigures* f : all) {
    per_request.Merge(*f->request_bubble_ns);
    for (size_t c = 0; c < kNumBubbleCauses; ++c) sums[c] += f->request_bubble_sum_ns[c];
  }
  out.per_request_ms = per_request.Summarize(kToMs);
  for (size_t c = 0; c < kNumBubbleCauses; ++c) {
    if (static_cast<BubbleCause>(c) == BubbleCause::kStarved || per_request.count() == 0) continue;
    out.per_request_mean_ms.emplace_back(
        BubbleCauseName(static_cast<BubbleCause>(c)),
        static_cast<double>(sums[c]) * kToMs / static_cast<double>(per_request.count()));
  }
  for (size_t k = 0; k < stages; ++k) {
    DurationNs busy = 0;
    IdleByCause idle{};
    for (const SimExecutorFigures* f : all) {
      busy += f->stages[k].busy_ns;
      for (size_t c = 0; c < kNumBubbleCauses; ++c) idle[c] += f->stages[k].bubble_ns[c];
    }
    out.stages.push_back({static_cast<double>(busy) * 1e-9, NamedSeconds(idle)});
  }
  return out;
}

// How far the requested step times exceed the measured range.
std::string Extrapolation(const StepTimeModel& model, const std::vector<const SimExecutorFigures*>& all) {
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
  return model.Extrapolation(most);
}

}  // namespace

EngineStats Simulation::Impl::Merged() const {
  if (replicas.size() == 1) return replicas[0].loop().Stats();
  EngineStats sum;
  double budget = 0, kv = 0;
  for (const SimReplica& r : replicas) {
    const EngineStats s = r.loop().Stats();
    sum.running += s.running;
    sum.waiting += s.waiting;
    sum.waiting_tokens += s.waiting_tokens;
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
    sum.migrated_in += s.migrated_in;
    sum.migrated_out += s.migrated_out;
    for (const auto counts : {&EngineStats::forced_drafts, &EngineStats::ngram_drafts, &EngineStats::model_drafts}) {
      (sum.*counts).drafts += (s.*counts).drafts;
      (sum.*counts).draft_tokens += (s.*counts).draft_tokens;
      (sum.*counts).accepted_tokens += (s.*counts).accepted_tokens;
    }
    // Replicas are equal, so steps have equal weight.
    budget += s.budget_utilization * static_cast<double>(s.steps);
    kv += s.kv_utilization * static_cast<double>(s.steps);
    sum.plan_hash = MixHash(sum.plan_hash, s.plan_hash);
  }
  if (sum.steps > 0) {
    sum.budget_utilization = budget / static_cast<double>(sum.steps);
    sum.kv_utilization = kv / static_cast<double>(sum.steps);
  }
  return sum;
}

RunResult Simulation::Outcome() const {
  const Impl& s = *impl_;
  RunResult r = s.metrics->Outcome(s.Merged());
  r.unfinished = s.workload.count() - s.ended;

  SimulatedFigures& f = r.simulated.emplace();
  std::vector<const SimExecutorFigures*> figures;
  double flops = 0, bytes = 0;
  for (const auto& replica : s.replicas) {
    figures.push_back(&replica.executor->figures());
    flops += figures.back()->flops;
    bytes += figures.back()->bytes;
  }
  // Steps of the whole run, whichever part is measured.
  const double run_s = r.served ? static_cast<double>(last_end_ns() - first_arrival_ns()) * 1e-9 : r.duration_s;
  double replicas_used = static_cast<double>(s.replicas.size());
  if (s.scaler != nullptr && last_end_ns() > first_arrival_ns()) {
    replicas_used = static_cast<double>(s.scaler->UsedNs(first_arrival_ns(), last_end_ns())) /
                    static_cast<double>(last_end_ns() - first_arrival_ns());
  }
  const double device_s = run_s * replicas_used;
  if (s.config.meter != nullptr && device_s > 0) {
    f.mfu = flops / (s.config.meter->peak_flops() * device_s);
    f.mbu = bytes / (s.config.meter->peak_bandwidth() * device_s);
  }
  f.bubbles = Bubbles(figures);
  f.extrapolation = Extrapolation(*s.config.step_time, figures);
  f.clipped_prompts = s.clipped_prompts;
  f.cut_outputs = s.cut_outputs;
  f.rows_dropped = s.workload.rows_dropped();
  f.objectives_below_a_step = s.objectives_below_a_step;
  f.shortest_step_ms = static_cast<double>(s.shortest_step_ns) * kToMs;
  f.replicas = static_cast<int64_t>(s.replicas.size());
  if (s.migrations != nullptr) f.migrations = s.migrations->figures();
  if (s.scaler != nullptr) {
    f.scaling = {s.config.scaling->least, s.config.replicas, s.scaler->started(), s.scaler->drained(), replicas_used};
  }
  if (s.job != nullptr) {
    r.plan = s.job->Figures(run_s);
    r.plan->achieved_sharing = r.engine->prefix_sharing;
  }
  return r;
}

}  // namespace tactus::sim
