// The size of an offline job's steps, with exactly known step times.
#include <gtest/gtest.h>

#include "core/sched/choices.h"
#include "core/sched/view_of.h"

namespace tactus::core {
namespace {

// `base_ns` for any step, plus a microsecond per token.
class KnownSteps final : public StepTimeModel {
 public:
  explicit KnownSteps(DurationNs base_ns) : base_ns_(base_ns) {}
  DurationNs StepTimeNs(const StepShape& shape) const override { return base_ns_ + 1000 * shape.tokens(); }

 private:
  DurationNs base_ns_;
};

int64_t TokensWith(const StepTimeModel* model, int64_t token_budget = 0) {
  SchedulerLimits limits;
  limits.step_time = model;
  limits.token_budget = token_budget;
  const StepBudget budget = MakeEfficientBudget(limits)->Next(StepView());
  EXPECT_EQ(budget.tokens, budget.prefill_tokens);
  return budget.tokens;
}

// A token in a step of n takes 1 + base / n microseconds: 1.1 times as long as in one of 2,048 at the base below.
TEST(EfficientBudget, IsTheSmallestStepThatKeepsTheDeviceBusy) {
  constexpr double kMicrosecond = 1e3, kLargest = 2048;
  const auto base_at = [&](double tokens) { return 0.1 / (1 / tokens - 1.1 / kLargest) * kMicrosecond; };
  const auto tokens_with = [&](double base_ns) {
    const KnownSteps model(static_cast<DurationNs>(base_ns));
    return TokensWith(&model);
  };
  EXPECT_EQ(tokens_with(0), 512);
  EXPECT_EQ(tokens_with(0.99 * base_at(512)), 512);
  EXPECT_EQ(tokens_with(1.01 * base_at(512)), 1024);
  EXPECT_EQ(tokens_with(0.99 * base_at(1024)), 1024);
  EXPECT_EQ(tokens_with(1.01 * base_at(1024)), 2048);
  EXPECT_EQ(tokens_with(1e9), 2048);
}

TEST(EfficientBudget, IsTheUsersTokenBudgetIfSet) {
  const KnownSteps model(1'000'000'000);
  EXPECT_EQ(TokensWith(&model, 300), 300);
  EXPECT_EQ(TokensWith(nullptr, 3000), 3000);
  EXPECT_EQ(TokensWith(nullptr), 512) << "no step times";
}

}  // namespace
}  // namespace tactus::core
