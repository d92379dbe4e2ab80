// While requests that state objectives are about, or were a short while ago: every step the largest that keeps the
// tightest gap between tokens stated by a running sequence, of those that can still be kept, counting the decodes of
// those that state something. Who states no gap has reading speed (--tbt-slo DURATION: that). What best effort may add
// is the composition's business. Without any such requests, or without step times: as tbt-slo, step for step.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "sched/budget/step_sizer.h"
#include "sched/choices.h"
#include "sched/promise.h"

namespace tactus::sched {
namespace {

constexpr int64_t kMostTokens = 2048;
constexpr DurationNs kShare = 2;  // of what the decodes alone take, where no step keeps what is asked for

class PromiseBudget final : public Budget {
 public:
  explicit PromiseBudget(const SchedulerLimits& limits)
      : plain_(MakeTbtSloBudget(limits)),
        model_(limits),
        most_(limits.token_budget > 0 ? limits.token_budget
                                      : std::max(limits.default_token_budget, kMostTokens / limits.pipeline_steps)) {
    if (limits.step_time != nullptr) sizer_.emplace(limits, most_);
  }

  // The same with and without step times: a server plans its memory before it has measured any.
  void Describe(ChoiceTraits* traits) const override {
    plain_->Describe(traits);
    traits->max_tokens = std::max(traits->max_tokens, most_);
    traits->wants_step_time = true;
  }
  StepBudget Next(const StepView& view) override { return plain_->Next(view); }
  StepBudget NextFor(const StepView& view, Order* order, const PlanBuilder& builder) override {
    if (!sizer_) return plain_->NextFor(view, order, builder);
    if (!view.waiting.empty()) order->Start(view);
    const PromiseModel::Step& step = model_.See(view);
    if (!step.promises) return plain_->NextFor(view, order, builder);
    const int64_t best_effort = std::min<int64_t>(step.best_effort, most_);
    if (view.num_prefilling == 0 && view.waiting.empty()) return {most_, most_};
    sizer_->SeeDecodes(view, [&](SlotId slot) { return !model_.MayBeLeftOut(view, slot); });
    sizer_->SeePrompts(view, order, builder, true);
    const int64_t tokens = sizer_->Largest([&](DurationNs) {
      if (step.allowed_ns != kNever) return step.allowed_ns;
      return std::max(model_.usual_gap_ns(), sizer_->decodes() == 0 ? 0 : kShare * sizer_->TimeOf(sizer_->decodes()));
    });
    return {std::min(tokens + best_effort, most_), tokens - std::min(tokens, sizer_->decodes())};
  }
  std::string Why() const override {
    if (!sizer_) return plain_->Why();
    return fmt::format("as the objectives of what runs allow, at most {}; without any: {}", most_, plain_->Why());
  }

 private:
  const std::unique_ptr<Budget> plain_;
  const PromiseModel model_;
  const int64_t most_;
  std::optional<StepSizer> sizer_;  // none without step times
};

}  // namespace

constinit const KnobList kPromiseBudgetKnobs{&kPromiseTurn, &kHeadroom};

std::unique_ptr<Budget> MakePromiseBudget(const SchedulerLimits& limits) {
  return std::make_unique<PromiseBudget>(limits);
}

}  // namespace tactus::sched
