// Sarathi-Serve's budget: the largest multiple of the tile whose predicted step time keeps the TBT objective (its section 4.3).
// Without an objective or a step-time model it is the fixed default, and says so.
#include <fmt/format.h>

#include <algorithm>

#include "sched/choices.h"

namespace tactus::sched {
namespace {

// The step that the profile is asked about: a full batch of decodes at half the context, the rest one prompt's chunk.
DurationNs StepTimeAt(const SchedulerLimits& limits, int64_t tokens) {
  const int64_t context = std::max<int64_t>(1, limits.max_model_len / 2);
  StepShape shape;
  shape.decodes = std::min<int64_t>(limits.max_num_seqs, tokens / 2);
  shape.decode_context_tokens = shape.decodes * context;
  shape.logit_rows = shape.decodes + 1;
  const ChunkShape chunk{static_cast<int32_t>(context), static_cast<int32_t>(tokens - shape.decodes)};
  shape.chunks = {&chunk, 1};
  return limits.step_time->StepTimeNs(shape);
}

}  // namespace

std::unique_ptr<Budget> MakeProfileBudget(const SchedulerLimits& limits) {
  if (limits.token_budget > 0) return MakeFixedBudgetOf(limits.token_budget, "--token-budget");
  const int64_t fallback = limits.default_token_budget;
  if (limits.tbt_slo_ns <= 0) return MakeFixedBudgetOf(fallback, "no --tbt-slo, so the default");
  if (limits.step_time == nullptr) {
    return MakeFixedBudgetOf(fallback, "--tbt-slo is given but this machine has no step-time profile, so the default");
  }
  const int64_t tile = std::max(1, limits.step_time->tile_tokens());
  const int64_t most = std::max<int64_t>(tile, limits.max_model_len / tile * tile);
  int64_t best = 0;
  for (int64_t tokens = tile; tokens <= most; tokens += tile) {
    if (StepTimeAt(limits, tokens) <= limits.tbt_slo_ns) best = tokens;
  }
  if (best == 0) {
    return MakeFixedBudgetOf(tile, fmt::format("no step keeps --tbt-slo {} ms, so one tile",
                                               static_cast<double>(limits.tbt_slo_ns) / 1e6));
  }
  return MakeFixedBudgetOf(best, fmt::format("the largest whose predicted step keeps --tbt-slo {} ms",
                                             static_cast<double>(limits.tbt_slo_ns) / 1e6));
}

}  // namespace tactus::sched
