// AccelGen's budget, chosen for every step (equation 6): tau = S_pf * SLO_min / T_pf, the tokens that a step
// computes in the time that the tightest objective among its sequences leaves: the running ones and the first in the
// queue. At least the tile and the number of decodes, at most --token-budget (4096). The pivot's time comes from the
// step-time model; without one from the fastest of the last steps, and before any step has ended the budget is the
// pivot.
//
// The equation assumes that time is proportional to tokens, and ignores the KV that decodes read. Ours, with a model
// (--accelgen-model on): tau is lowered until the step's own predicted time (its decodes with their contexts, the rest
// one chunk) keeps the decodes' objectives. A decode's objective that not even the smallest step would keep is ignored;
// the next tightest counts.
#include <fmt/format.h>

#include <algorithm>

#include "core/sched/accelgen/slack.h"
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

constexpr int64_t kMostSloTokens = 4096;
constexpr int64_t kTileWithoutModel = 64;

constexpr Knob<std::string> kModelLowers{
    "accelgen-model",
    kAutoKnob,
    {.choices = "auto|on|off",
     .help = "budget slo: the step's own predicted time keeps the decodes' objectives (on), or equation 6 of the paper "
             "alone sizes it (off); auto: the preset's, else on"}};

class SloBudget final : public Budget {
 public:
  SloBudget(const SchedulerLimits& limits, bool whole_prompts)
      : slack_(limits),
        model_(limits.StepTimes()),
        lowers_(model_ != nullptr && limits.policy[kModelLowers] != "off"),
        most_(limits.token_budget > 0 ? limits.token_budget : kMostSloTokens),
        tile_(model_ != nullptr ? std::max(1, model_->tile_tokens()) : kTileWithoutModel),
        longest_prompt_(whole_prompts ? limits.max_model_len : 0) {}

  void Describe(ChoiceTraits* traits) const override {
    traits->max_prefill_tokens = std::max(most_, longest_prompt_);
    traits->max_tokens = most_ + longest_prompt_;
  }

  StepBudget Next(const StepView& view) override { return Make(view, kNoSlot); }
  StepBudget NextFor(const StepView& view, Order* order, const PlanBuilder&) override {
    if (view.waiting.empty()) return Make(view, kNoSlot);
    order->Start(view);
    return Make(view, order->Next());
  }

  std::string Why() const override {
    return fmt::format("up to {} tokens per step, as the objectives allow; {}", most_, slack_.pivot().why);
  }

 private:
  StepBudget Make(const StepView& view, SlotId first_waiting) const {
    const DurationNs pivot_ns = slack_.PivotNs(view);
    const int64_t pivot = slack_.pivot().tokens;
    DurationNs allowance = kNever, of_decodes = kNever;
    StepShape shape;
    ChunkShape chunk;
    for (const SlotId slot : view.running) {
      if (view.seq.state[slot] == SeqState::kDecode) {
        ++shape.decodes;
        shape.decode_context_tokens += view.seq.known_planned[slot];
      } else {
        chunk.context_tokens = std::max(chunk.context_tokens, view.seq.computed_planned[slot]);
      }
    }
    const int64_t decodes = shape.decodes;
    const int64_t least = std::min(most_, std::max(tile_, decodes));
    const DurationNs least_ns = lowers_ && decodes > 0 ? TimeOf(shape, chunk, least) : 0;
    for (const SlotId slot : view.running) {
      const DurationNs its = slack_.StepAllowanceNs(view, slot, pivot_ns);
      const bool decode = view.seq.state[slot] == SeqState::kDecode;
      if (decode && its < least_ns) continue;
      if (decode) of_decodes = std::min(of_decodes, its);
      allowance = std::min(allowance, its);
    }
    if (first_waiting != kNoSlot)
      allowance = std::min(allowance, slack_.StepAllowanceNs(view, first_waiting, pivot_ns));
    int64_t tokens = pivot;
    if (pivot_ns > 0) {
      const double exact = static_cast<double>(pivot) * static_cast<double>(std::max<DurationNs>(0, allowance)) /
                           static_cast<double>(pivot_ns);
      tokens = static_cast<int64_t>(std::min(exact, static_cast<double>(most_)));
    }
    tokens = std::clamp(tokens, least, most_);
    if (lowers_ && of_decodes != kNever) tokens = LargestThatKeeps(of_decodes, shape, chunk, least, tokens);
    return {tokens, tokens, longest_prompt_};
  }

  DurationNs TimeOf(StepShape shape, ChunkShape chunk, int64_t tokens) const {
    chunk.tokens = static_cast<int32_t>(tokens - shape.decodes);
    if (chunk.tokens > 0) shape.chunks = {&chunk, 1};
    shape.logit_rows = shape.decodes + (chunk.tokens > 0 ? 1 : 0);
    return model_->StepTimeNs(shape);
  }

  // The most tokens in [least, most], to a tile, whose step takes at most `allowed_ns`. Precondition: a step of `least`
  // does.
  int64_t LargestThatKeeps(DurationNs allowed_ns, const StepShape& shape, const ChunkShape& chunk, int64_t least,
                           int64_t most) const {
    if (TimeOf(shape, chunk, most) <= allowed_ns) return most;
    while (most - least > tile_) {
      const int64_t middle = least + (most - least) / 2;
      (TimeOf(shape, chunk, middle) <= allowed_ns ? least : most) = middle;
    }
    return least;
  }

  const SlackModel slack_;
  const StepTimeModel* const model_;
  const bool lowers_;
  const int64_t most_, tile_, longest_prompt_;
};

}  // namespace

constinit const KnobList kSloKnobs{&kTtftObjective, &kTbtObjective, &kPivotTokens,
                                   &kMissedTurn,    &kMissedRule,   &kModelLowers};

std::unique_ptr<Budget> MakeSloBudget(const SchedulerLimits& limits) {
  return std::make_unique<SloBudget>(limits, false);
}
std::unique_ptr<Budget> MakeSloWholeBudget(const SchedulerLimits& limits) {
  return std::make_unique<SloBudget>(limits, true);
}

}  // namespace tactus::core
