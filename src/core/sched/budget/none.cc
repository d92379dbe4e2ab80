// No budget but the number of sequences: max(tau, L_max) tokens per step, so that every prompt fits one step and memory
// can be planned; unlimited in simulations that request it.
#include <fmt/format.h>

#include <algorithm>

#include "core/sched/choices.h"

namespace tactus::core {
namespace {

class NoBudget final : public Budget {
 public:
  explicit NoBudget(const SchedulerLimits& limits)
      : tokens_(limits.unlimited_steps ? kUnlimited : std::max<int64_t>(limits.token_budget, limits.max_model_len)) {}
  void Describe(ChoiceTraits* traits) const override { traits->max_tokens = traits->max_prefill_tokens = tokens_; }
  StepBudget Next(const StepView&) override { return {tokens_, tokens_}; }
  std::string Why() const override {
    return tokens_ == kUnlimited ? "no budget: steps of any size"
                                 : fmt::format("no budget; at most {} tokens per step", tokens_);
  }

 private:
  static constexpr int64_t kUnlimited = int64_t{1} << 40;
  const int64_t tokens_;
};

}  // namespace

std::unique_ptr<Budget> MakeNoBudget(const SchedulerLimits& limits) {
  return std::make_unique<NoBudget>(limits);
}

}  // namespace tactus::core
