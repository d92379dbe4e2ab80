// One size for all steps of an offline job: the smallest of 512, 1,024 and 2,048 tokens that keeps the device busy,
// where a prompt token takes at most a tenth longer than in the largest of these (ours; BlendServe fills steps of whole
// tiles, of a size that it does not state). Latency does not matter in such a job, but smaller steps spread the
// decodes' KV reads over more of the prompts' compute, on a device that does both at once: KV reads per step are
// bounded by the KV memory. Without a step-time model the size is 512. --token-budget sets the size.
#include <fmt/format.h>

#include "core/sched/choices.h"

namespace tactus::core {
namespace {

constexpr int64_t kLeast = 512, kMost = 2048;
constexpr double kEfficientSlowdown = 1.1;

// Time per token of a step of `tokens` prompt tokens.
double TokenNs(const StepTimeModel& model, int64_t tokens) {
  const ChunkShape chunk{.tokens = static_cast<int32_t>(tokens)};
  return static_cast<double>(model.StepTimeNs({.chunks = {&chunk, 1}, .logit_rows = 1})) / static_cast<double>(tokens);
}

class EfficientBudget final : public Budget {
 public:
  explicit EfficientBudget(std::unique_ptr<Budget> fixed) : fixed_(std::move(fixed)) {}
  void Describe(ChoiceTraits* traits) const override {
    fixed_->Describe(traits);
    traits->offline = true;
  }
  StepBudget Next(const StepView& view) override { return fixed_->Next(view); }
  std::string Why() const override { return fixed_->Why(); }

 private:
  const std::unique_ptr<Budget> fixed_;
};

std::unique_ptr<Budget> BySteps(const SchedulerLimits& limits) {
  if (limits.token_budget > 0) return MakeFixedBudgetOf(limits.token_budget, "--token-budget");
  const StepTimeModel* model = limits.StepTimes();
  if (model == nullptr) return MakeFixedBudgetOf(kLeast, "the default, as there are no step times", kMost);
  const double best_ns = TokenNs(*model, kMost);
  int64_t tokens = kLeast;
  while (tokens < kMost && TokenNs(*model, tokens) > kEfficientSlowdown * best_ns) tokens *= 2;
  const double slower = TokenNs(*model, tokens) / best_ns - 1;
  return MakeFixedBudgetOf(
      tokens, fmt::format("a prompt token takes {:.0f} % longer than in steps of {}", 100 * slower, kMost));
}

}  // namespace

std::unique_ptr<Budget> MakeEfficientBudget(const SchedulerLimits& limits) {
  return std::make_unique<EfficientBudget>(BySteps(limits));
}

}  // namespace tactus::core
