// While there are sequences with objectives, or were recently: each step is the largest that keeps the shortest gap
// among the running sequences' objectives that can still be kept, counting the decodes that may not be left out. The
// gap of a sequence without a TBT objective is reading speed, or --tbt-slo if that is a duration. The composition
// decides what best effort adds. Without such sequences steps are those of tbt-slo; without step times their size is
// fixed.
//
// In two cases the step is the smallest in which prompts advance nearly as fast (kMostLoss). If the waiting prompts
// that the largest step would reach need more KV than is free, a larger step only holds KV for longer, of prompts that
// end with it and of every decode beside them. If few prompts wait (kFewWaiting), a prompt that arrives during the step
// waits for its end.
#include <fmt/format.h>

#include <algorithm>

#include "core/sched/budget/step_sizer.h"
#include "core/sched/choices.h"
#include "core/sched/promise/promise.h"

namespace tactus::core {
namespace {

constexpr int64_t kMostPromiseTokens = 2048;
constexpr double kMostLoss = 0.1;       // in the prompts' tokens per second, against the largest step
constexpr size_t kFewWaiting = 2;       // prompts
constexpr DurationNs kDecodeShare = 2;  // of the decodes' time alone, if no gap limits the step

int64_t MostTokens(const SchedulerLimits& limits) {
  if (limits.token_budget > 0) return limits.token_budget;
  return std::max(limits.default_token_budget, kMostPromiseTokens / limits.pipeline_steps);
}

class PromiseBudget final : public Budget {
 public:
  explicit PromiseBudget(const SchedulerLimits& limits)
      : plain_(MakeTbtSloBudget(limits)), model_(limits.Shared<PromiseModel>()), sizer_(limits, MostTokens(limits)) {}

  void Describe(ChoiceTraits* traits) const override {
    plain_->Describe(traits);
    traits->max_tokens = std::max(traits->max_tokens, sizer_.most());
  }
  StepBudget Next(const StepView& view) override { return plain_->Next(view); }
  StepBudget NextFor(const StepView& view, Order* order, const PlanBuilder& builder) override {
    if (!view.waiting.empty()) order->Start(view);
    const PromiseModel::Step& step = model_->Update(view);
    if (!step.promises) return plain_->NextFor(view, order, builder);
    const int64_t best_effort = std::min<int64_t>(step.best_effort, sizer_.most());
    if (view.num_prefilling == 0 && view.waiting.empty()) return {sizer_.most(), sizer_.most()};
    sizer_.CountDecodes(view, [&](SlotId slot) { return !model_->MayBeLeftOut(view, slot); });
    sizer_.CollectPrompts(view, order, builder, true);
    const int64_t largest = sizer_.Largest([&](DurationNs) {
      if (step.allowed_ns != kNever) return step.allowed_ns;
      return std::max(model_->usual_gap_ns(),
                      sizer_.decodes() == 0 ? 0 : kDecodeShare * sizer_.TimeOf(sizer_.decodes()));
    });
    const bool kv_is_short = sizer_.waiting_tokens() > step.free_tokens;
    const bool few_wait = view.waiting.size() <= kFewWaiting && sizer_.decodes() + sizer_.prompt_tokens() > largest;
    const int64_t tokens = kv_is_short || few_wait ? sizer_.SmallestAsFast(largest, kMostLoss) : largest;
    return {std::min(tokens + best_effort, sizer_.most()), tokens - std::min(tokens, sizer_.decodes())};
  }
  std::string Why() const override {
    return fmt::format("as the objectives of running sequences allow, at most {}; without any: {}", sizer_.most(),
                       plain_->Why());
  }

 private:
  const std::unique_ptr<Budget> plain_;
  const std::shared_ptr<PromiseModel> model_;
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
