// Steps of whole tiles of 128 tokens, as in BlendServe (sections 4 and 5.3): the target size lies between two multiples
// of 128, and steps of the two alternate so that their mean is the target. The target is the size at which a step is as
// dense as the job while its decodes read the whole KV memory (PlannedPlace::step_tokens), from the plan of the last
// sequence that started. A step has at least one tile more than its decodes fill, and at most 2,048 tokens (ours).
// Without a plan it is 512 tokens. --token-budget sets the size.
#include <algorithm>

#include "core/sched/choices.h"

namespace tactus::core {
namespace {

constexpr int64_t kTileOfSteps = 128, kUnplannedStep = 512, kLargestStep = 2048;

// Sizes in whole tiles; the sum over the first n steps is the largest multiple of a tile up to n x wanted.
int64_t InTurn(int64_t wanted, StepId step) {
  const int64_t n = std::max<int64_t>(0, step);
  return ((n + 1) * wanted / kTileOfSteps - n * wanted / kTileOfSteps) * kTileOfSteps;
}

class WholeTiles final : public Budget {
 public:
  void Describe(ChoiceTraits* traits) const override {
    traits->max_tokens = traits->max_prefill_tokens = kLargestStep;
    traits->offline = true;
  }
  StepBudget Next(const StepView& view) override {
    const auto decodes = static_cast<int64_t>(view.running.size()) - view.num_prefilling;
    const int64_t least = (decodes / kTileOfSteps + 1) * kTileOfSteps;
    const int64_t tokens = std::min(kLargestStep, std::max(least, InTurn(Wanted(view), view.step)));
    return {tokens, tokens};
  }
  std::string Why() const override {
    return "steps in multiples of 128 tokens, sized by the plan's density (512 without a plan)";
  }

 private:
  static int64_t Wanted(const StepView& view) {
    for (auto it = view.running.rbegin(); it != view.running.rend(); ++it) {
      if (const PlannedPlace& place = view.seq.planned[*it]; place.step_tokens > 0) return Bounded(place);
    }
    for (const SlotId slot : view.waiting) {
      if (const PlannedPlace& place = view.seq.planned[slot]; place.step_tokens > 0) return Bounded(place);
    }
    return kUnplannedStep;
  }
  static int64_t Bounded(const PlannedPlace& place) {
    return std::clamp<int64_t>(place.step_tokens, kTileOfSteps, kLargestStep);
  }
};

}  // namespace

std::unique_ptr<Budget> MakeWholeTiles(const SchedulerLimits& limits) {
  if (limits.token_budget > 0) return MakeFixedBudgetOf(limits.token_budget, "--token-budget");
  return std::make_unique<WholeTiles>();
}

}  // namespace tactus::core
