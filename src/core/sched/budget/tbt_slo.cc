// The budget that keeps --tbt-slo, chosen for every step: the largest multiple of the tile whose predicted step
// takes no longer than the objective, with the decodes and contexts of this step and the chunks that come next
// (half-done prompts by arrival, then the queue, each behind its computed or cached positions). Ours: Sarathi-Serve
// chooses one size from one profile (budget profile).
//
// - At most --token-budget, or kMostTbtTokens if only the objective is given. With pipeline stages the steps in flight
// share those (but never less than the preset's size each): a prompt computed in fewer, longer steps leaves the stages
// idle behind the shorter steps between them.
// - At least the decodes and kLeastPromptTokens: prompts continue even if decodes alone miss the objective. So a prompt
// of p tokens at the head of the queue is computed in at most p / kLeastPromptTokens steps that have room beside their
// decodes.
// - A step without prompts has no size to choose, and needs no prediction.
//
// The default objective (--tbt-slo auto) is reading speed, or kDecodesShare times the time of the step's decodes alone
// where that is more: on a slow machine, or beside many streams, prompts then have half of the time, and a stream is at
// most twice as slow as without them. It only makes steps smaller than the preset's size, and --token-budget overrides
// it.
#include <fmt/format.h>

#include <algorithm>

#include "core/sched/budget/step_sizer.h"
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

constexpr DurationNs kDecodesShare = 2;
constexpr int64_t kMostTbtTokens = 2048;  // as the papers' relaxed objectives

class TbtSloBudget final : public Budget {
 public:
  TbtSloBudget(const SchedulerLimits& limits, int64_t most)
      : automatic_(limits.tbt_slo_ns == kAutoDuration),
        share_(ShareOfObjective(limits)),
        objective_ns_(automatic_ ? kReadingSpeedNs : limits.tbt_slo_ns),
        allowed_ns_(ShareOf(objective_ns_)),
        sizer_(limits, most) {}

  void Describe(ChoiceTraits* traits) const override {
    traits->max_tokens = sizer_.most();
    traits->max_prefill_tokens = std::min(sizer_.most(), StepSizer::kLeastPromptTokens);  // that every step allows
  }

  StepBudget Next(const StepView&) override { return {sizer_.most(), sizer_.most()}; }
  StepBudget NextFor(const StepView& view, Order* order, const PlanBuilder& builder) override {
    const int64_t tokens = Largest(view, order, builder);
    return {tokens, tokens};
  }

  std::string Why() const override {
    return fmt::format(
        "every step the largest of at most {} tokens that is predicted to keep {:.1f} ms between tokens{}{}",
        sizer_.most(), static_cast<double>(objective_ns_) * 1e-6,
        share_ < 1 ? fmt::format(" x {} for the pipeline", share_) : "",
        automatic_ ? ", or twice what its decodes take (reading speed; --tbt-slo none: off)" : " (--tbt-slo)");
  }

 private:
  int64_t Largest(const StepView& view, Order* order, const PlanBuilder& builder) {
    if (view.num_prefilling == 0 && view.waiting.empty()) return sizer_.most();
    sizer_.CountDecodes(view, [](SlotId) { return true; });
    sizer_.CollectPrompts(view, order, builder, false);
    return sizer_.Largest([this](DurationNs whole) {
      if (whole <= allowed_ns_ || !automatic_ || sizer_.decodes() == 0) return allowed_ns_;
      return std::max(allowed_ns_, ShareOf(kDecodesShare * sizer_.TimeOf(sizer_.decodes())));
    });
  }

  DurationNs ShareOf(DurationNs ns) const { return static_cast<DurationNs>(static_cast<double>(ns) * share_); }

  const bool automatic_;
  const double share_;
  const DurationNs objective_ns_, allowed_ns_;
  StepSizer sizer_;
};

}  // namespace

constinit const KnobList kTbtSloKnobs{&kHeadroom};

std::unique_ptr<Budget> MakeTbtSloBudget(const SchedulerLimits& limits) {
  const bool automatic = limits.tbt_slo_ns == kAutoDuration;
  if (limits.token_budget > 0 && limits.tbt_slo_ns <= 0)
    return MakeFixedBudgetOf(limits.token_budget, "--token-budget");
  const int64_t usual = limits.default_token_budget;
  if (limits.tbt_slo_ns == 0) return MakeFixedBudgetOf(usual, "no --tbt-slo, so the default");
  const int64_t by_objective = automatic ? usual : std::max(usual, kMostTbtTokens / limits.pipeline_steps);
  const int64_t most = limits.token_budget > 0 ? limits.token_budget : by_objective;
  if (limits.StepTimes() == nullptr) {
    return MakeFixedBudgetOf(std::min(usual, most),
                             fmt::format("{}; there are no step times of this machine for --tbt-slo ('tactus profile' "
                                         "measures them)",
                                         most < usual ? "--token-budget" : "the default"),
                             most);
  }
  return std::make_unique<TbtSloBudget>(limits, most);
}

}  // namespace tactus::core
