// While requests that state objectives are about, or were a short while ago: every step the largest that keeps the
// tightest gap between tokens stated by a running sequence, of those that can still be kept, counting the decodes of
// those that state something. A request that states no gap has reading speed (--tbt-slo DURATION: that). What best
// effort may add is the composition's business. Without any such requests as tbt-slo, step for step; without step times
// fixed.
//
// The step is the smallest in which prompts advance nearly as fast (kMostLoss) in two cases. Where the waiting prompts
// that a step of the largest size would reach need more KV than is free, a larger one only holds KV for longer: of
// prompts that end with it, and of every decode beside it. Where few prompts wait (kFewWaiting), one that arrives
// during the step waits for its end.
#include <fmt/format.h>

#include <algorithm>

#include "core/sched/budget/step_sizer.h"
#include "core/sched/choices.h"
#include "core/sched/promise/promise.h"

namespace tactus::core {
namespace {

constexpr int64_t kMostPromiseTokens = 2048;
constexpr double kMostLoss = 0.1;       // of the prompts' tokens per second, in a step of less than the largest size
constexpr size_t kFewWaiting = 2;       // prompts
constexpr DurationNs kDecodeShare = 2;  // of what the decodes alone take, where no step keeps what is asked for

int64_t MostTokens(const SchedulerLimits& limits) {
  if (limits.token_budget > 0) return limits.token_budget;
  return std::max(limits.default_token_budget, kMostPromiseTokens / limits.pipeline_steps);
}

class PromiseBudget final : public Budget {
 public:
  explicit PromiseBudget(const SchedulerLimits& limits)
      : plain_(MakeTbtSloBudget(limits)), model_(limits), sizer_(limits, MostTokens(limits)) {}

  void Describe(ChoiceTraits* traits) const override {
    plain_->Describe(traits);
    traits->max_tokens = std::max(traits->max_tokens, sizer_.most());
  }
  StepBudget Next(const StepView& view) override { return plain_->Next(view); }
  StepBudget NextFor(const StepView& view, Order* order, const PlanBuilder& builder) override {
    if (!view.waiting.empty()) order->Start(view);
    const PromiseModel::Step& step = model_.See(view);
    if (!step.promises) return plain_->NextFor(view, order, builder);
    const int64_t best_effort = std::min<int64_t>(step.best_effort, sizer_.most());
    if (view.num_prefilling == 0 && view.waiting.empty()) return {sizer_.most(), sizer_.most()};
    sizer_.SeeDecodes(view, [&](SlotId slot) { return !model_.MayBeLeftOut(view, slot); });
    sizer_.SeePrompts(view, order, builder, true);
    const int64_t largest = sizer_.Largest([&](DurationNs) {
      if (step.allowed_ns != kNever) return step.allowed_ns;
      return std::max(model_.usual_gap_ns(),
                      sizer_.decodes() == 0 ? 0 : kDecodeShare * sizer_.TimeOf(sizer_.decodes()));
    });
    const bool kv_is_short = sizer_.waiting_tokens() > step.free_tokens;
    const bool few_wait = view.waiting.size() <= kFewWaiting && sizer_.decodes() + sizer_.prompt_tokens() > largest;
    const int64_t tokens = kv_is_short || few_wait ? sizer_.SmallestAsFast(largest, kMostLoss) : largest;
    return {std::min(tokens + best_effort, sizer_.most()), tokens - std::min(tokens, sizer_.decodes())};
  }
  std::string Why() const override {
    return fmt::format("as the objectives of what runs allow, at most {}; without any: {}", sizer_.most(),
                       plain_->Why());
  }

 private:
  const std::unique_ptr<Budget> plain_;
  const PromiseModel model_;
  StepSizer sizer_;
};

}  // namespace

constinit const KnobList kPromiseBudgetKnobs{&kPromiseTurn, &kHeadroom};

std::unique_ptr<Budget> MakePromiseBudget(const SchedulerLimits& limits) {
  if (limits.StepTimes() == nullptr) {
    const bool given = limits.token_budget > 0;
    return MakeFixedBudgetOf(given ? limits.token_budget : limits.default_token_budget,
                             fmt::format("{}; there are no step times of this machine to keep objectives by ('tactus "
                                         "profile' measures them)",
                                         given ? "--token-budget" : "the default"),
                             MostTokens(limits));
  }
  return std::make_unique<PromiseBudget>(limits);
}

}  // namespace tactus::core
