// Reserves the sequence's greatest possible length, min(L_max, p + max_tokens), or L_max with --reserve-full (Orca,
// Sarathi and FasterTransformer in the papers' experiments): running sequences never meet a shortage.
#include <algorithm>
#include <cmath>

#include "core/sched/choices.h"

namespace tactus::core {
namespace {

class MaxLength final : public Admission {
 public:
  explicit MaxLength(const SchedulerLimits& limits)
      : max_model_len_(limits.max_model_len), full_(limits.reserve_full), keep_free_(KeepFreeBlocks(limits)) {}
  void Describe(ChoiceTraits* traits) const override {
    traits->reserves_growth = true;
    traits->reserves_context = full_;
  }
  KvDemand Demand(const StepView& view, SlotId slot, int32_t) const override {
    const int32_t longest = view.seq.prompt_tokens[slot] + view.seq.max_output_tokens[slot];
    return {full_ ? max_model_len_ : std::min(max_model_len_, longest), keep_free_};
  }

 private:
  const int32_t max_model_len_;
  const bool full_;
  const int64_t keep_free_;
};

}  // namespace

int64_t KeepFreeBlocks(const SchedulerLimits& limits) {
  return static_cast<int64_t>(std::ceil(limits.watermark * static_cast<double>(limits.blocks_total)));
}

std::unique_ptr<Admission> MakeMaxLength(const SchedulerLimits& limits) {
  return std::make_unique<MaxLength>(limits);
}

}  // namespace tactus::core
