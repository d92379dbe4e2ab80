// AccelGen's budget, made anew for every step (equation 6): tau = S_pf * SLO_min / T_pf, the tokens that a step computes in the
// time that the tightest objective among its sequences leaves: the running ones and the first in the queue. Never less than
// the tile or the decodes there are, never more than --token-budget (4096). The pivot's time comes from the step-time model;
// without one from the fastest of the last steps, and before any step has ended the budget is the pivot.
#include <fmt/format.h>

#include <algorithm>

#include "sched/choices.h"
#include "sched/slack.h"

namespace tactus::sched {
namespace {

constexpr int64_t kMostTokens = 4096;
constexpr int64_t kTileWithoutModel = 64;

class SloBudget final : public Budget {
 public:
  SloBudget(const SchedulerLimits& limits, bool whole_prompts)
      : slack_(limits), most_(limits.token_budget > 0 ? limits.token_budget : kMostTokens),
        tile_(limits.step_time != nullptr ? std::max(1, limits.step_time->tile_tokens()) : kTileWithoutModel),
        longest_prompt_(whole_prompts ? limits.max_model_len : 0) {}

  void Describe(ChoiceTraits* traits) const override {
    traits->max_prefill_tokens = std::max(most_, longest_prompt_);
    traits->max_tokens = most_ + longest_prompt_;
  }

  StepBudget Next(const StepView& view) override { return Make(view, kNoSlot); }
  StepBudget NextFor(const StepView& view, Order* order) override {
    if (view.waiting.empty()) return Make(view, kNoSlot);
    order->Start(view);
    return Make(view, order->Next());
  }

  std::string Why() const override {
    return fmt::format("up to {} tokens per step, as the objectives allow; {}", most_, slack_.pivot().why);
  }

 private:
  StepBudget Make(const StepView& view, SlotId first_waiting) const {
    DurationNs pivot_ns = slack_.pivot().step_ns;
    const StepWindow& w = slack_.Window(view);
    const int64_t pivot = slack_.pivot().tokens;
    if (pivot_ns == 0 && w.fastest_tokens > 0) pivot_ns = std::max<DurationNs>(1, pivot * w.fastest_ns / w.fastest_tokens);
    DurationNs allowance = kNever;
    int64_t decodes = 0;
    for (const SlotId slot : view.running) {
      decodes += view.seq.state[slot] == SeqState::kDecode ? 1 : 0;
      allowance = std::min(allowance, slack_.StepAllowanceNs(view, slot, pivot_ns));
    }
    if (first_waiting != kNoSlot) allowance = std::min(allowance, slack_.StepAllowanceNs(view, first_waiting, pivot_ns));
    int64_t tokens = pivot;
    if (pivot_ns > 0) {
      const double exact = static_cast<double>(pivot) * static_cast<double>(std::max<DurationNs>(0, allowance)) / static_cast<double>(pivot_ns);
      tokens = static_cast<int64_t>(std::min(exact, static_cast<double>(most_)));
    }
    tokens = std::min(most_, std::max({tokens, tile_, decodes}));
    return {tokens, tokens, longest_prompt_};
  }

  const SlackModel slack_;
  const int64_t most_, tile_, longest_prompt_;
};

}  // namespace

std::unique_ptr<Budget> MakeSloBudget(const SchedulerLimits& limits) { return std::make_unique<SloBudget>(limits, false); }
std::unique_ptr<Budget> MakeSloWholeBudget(const SchedulerLimits& limits) { return std::make_unique<SloBudget>(limits, true); }

}  // namespace tactus::sched
