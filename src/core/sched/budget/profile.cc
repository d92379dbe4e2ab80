// Sarathi-Serve's budget as in its paper, one for all steps: the largest multiple of the tile whose predicted step time
// keeps the TBT objective (section 4.3 there). Without a user-set objective or a step-time model it is the fixed
// default, and reports why. A step with longer contexts than the reference step misses the objective: budget tbt-slo
// predicts every step.
#include <fmt/format.h>

#include <algorithm>

#include "core/sched/budget/tbt_objective.h"
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

// The reference step (ours: the paper profiles "batches of different numbers of tokens"). As many decodes as in the
// paper's definition of strict objectives, each over a context that most requests stay below, beside one prompt's chunk
// behind as much context. A small step has room for few decodes, and a small KV memory for short contexts.
constexpr int64_t kDecodes = 32, kContext = 1024;

struct ReferenceStep {
  int64_t decodes = 0, context = 0;
  ChunkShape chunk;
  StepShape shape;
  ReferenceStep(const SchedulerLimits& limits, int64_t tokens) {
    decodes = std::min({int64_t{limits.max_num_seqs}, kDecodes, tokens / 2});
    const int64_t memory = limits.blocks_total * limits.block_size / (decodes + 1);
    context = std::max<int64_t>(1, std::min({int64_t{limits.max_model_len} / 2, kContext, memory}));
    chunk = {static_cast<int32_t>(context), static_cast<int32_t>(tokens - decodes)};
    shape.chunks = {&chunk, 1};
    shape.decodes = decodes;
    shape.decode_context_tokens = decodes * context;
    shape.logit_rows = decodes + 1;
  }
  ReferenceStep(const ReferenceStep&) = delete;
};

}  // namespace

constinit const KnobList kProfileKnobs{&kHeadroom};

std::unique_ptr<Budget> MakeProfileBudget(const SchedulerLimits& limits) {
  if (limits.token_budget > 0) return MakeFixedBudgetOf(limits.token_budget, "--token-budget");
  const int64_t fallback = limits.default_token_budget;
  if (limits.tbt_slo_ns <= 0) return MakeFixedBudgetOf(fallback, "no --tbt-slo, so the default");
  const StepTimeModel* model = limits.StepTimes();
  if (model == nullptr) {
    return MakeFixedBudgetOf(fallback,
                             "--tbt-slo is given but there are no step times of this machine ('tactus profile' "
                             "measures them), so the default",
                             fallback);
  }
  const double share = ShareOfObjective(limits);
  const auto allowed_ns = static_cast<DurationNs>(static_cast<double>(limits.tbt_slo_ns) * share);
  const int64_t granule = GranuleOf(*model);
  const int64_t most = std::max<int64_t>(1, limits.max_model_len / granule);
  // Step times never fall with more tokens: bisect for the last multiple that keeps the objective.
  const auto keeps = [&](int64_t multiple) {
    return model->StepTimeNs(ReferenceStep(limits, multiple * granule).shape) <= allowed_ns;
  };
  int64_t low = 0, high = most + 1;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (keeps(middle) ? low : high) = middle;
  }
  const int64_t tokens = std::max<int64_t>(1, low) * granule;
  const ReferenceStep step(limits, tokens);
  const std::string of = fmt::format(
      "{} decodes and a chunk of {} behind {} tokens each: {:.1f} ms predicted, --tbt-slo {:.1f} ms{}", step.decodes,
      step.chunk.tokens, step.context, static_cast<double>(model->StepTimeNs(step.shape)) * 1e-6,
      static_cast<double>(limits.tbt_slo_ns) * 1e-6, share < 1 ? fmt::format(" x {} for the pipeline", share) : "");
  return MakeFixedBudgetOf(tokens,
                           low > 0 ? "the largest that keeps the objective with " + of
                                   : "the smallest step; no step keeps the objective: " + of,
                           tokens);
}

}  // namespace tactus::core
