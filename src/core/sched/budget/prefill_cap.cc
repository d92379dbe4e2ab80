// At most L_max prompt tokens per step and any number of decodes: vLLM's limit in Sarathi-Serve's Algorithm 2.
#include <fmt/format.h>

#include "core/sched/choices.h"

namespace tactus::core {
namespace {

class PrefillCap final : public Budget {
 public:
  explicit PrefillCap(const SchedulerLimits& limits)
      : prefill_tokens_(limits.max_model_len), tokens_(prefill_tokens_ + limits.max_num_seqs) {}
  void Describe(ChoiceTraits* traits) const override {
    traits->max_prefill_tokens = prefill_tokens_;
    traits->max_tokens = tokens_;
  }
  StepBudget Next(const StepView&) override { return {tokens_, prefill_tokens_}; }
  std::string Why() const override {
    return fmt::format("at most {} prompt tokens per step (the context limit)", prefill_tokens_);
  }

 private:
  const int64_t prefill_tokens_;
  const int64_t tokens_;
};

}  // namespace

std::unique_ptr<Budget> MakePrefillCap(const SchedulerLimits& limits) {
  return std::make_unique<PrefillCap>(limits);
}

}  // namespace tactus::core
