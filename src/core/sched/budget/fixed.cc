// A fixed token budget tau, for prompts and decodes together.
#include <fmt/format.h>

#include <algorithm>

#include "core/sched/choices.h"

namespace tactus::core {
namespace {

class FixedBudget final : public Budget {
 public:
  FixedBudget(int64_t tokens, std::string why, int64_t most_by_step_time)
      : tokens_(tokens), why_(std::move(why)), most_by_step_time_(most_by_step_time) {}
  void Describe(ChoiceTraits* traits) const override {
    traits->max_tokens = std::max(tokens_, most_by_step_time_);
    traits->max_prefill_tokens = tokens_;
  }
  StepBudget Next(const StepView&) override { return {tokens_, tokens_}; }
  std::string Why() const override { return fmt::format("{} tokens per step: {}", tokens_, why_); }

 private:
  const int64_t tokens_;
  const std::string why_;
  const int64_t most_by_step_time_;
};

}  // namespace

std::unique_ptr<Budget> MakeFixedBudgetOf(int64_t tokens, std::string why, int64_t most_by_step_time) {
  return std::make_unique<FixedBudget>(tokens, std::move(why), most_by_step_time);
}

std::unique_ptr<Budget> MakeFixedBudget(const SchedulerLimits& limits) {
  const std::string unused =
      limits.tbt_slo_ns > 0 ? "; --tbt-slo does not size these steps, --budget tbt-slo would" : "";
  return limits.token_budget > 0 ? MakeFixedBudgetOf(limits.token_budget, "--token-budget" + unused)
                                 : MakeFixedBudgetOf(limits.default_token_budget, "the preset's default" + unused);
}

}  // namespace tactus::core
