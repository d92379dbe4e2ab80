// As prompt-fits; while there are sequences with objectives, a start must also leave room for its predicted answer. By
// the time the answer has grown that far, some running sequence has ended, so few lose their KV.
#include "core/sched/choices.h"
#include "core/sched/promise/promise.h"

namespace tactus::core {
namespace {

class PromiseAdmission final : public Admission {
 public:
  explicit PromiseAdmission(const SchedulerLimits& limits)
      : model_(limits.Shared<PromiseModel>()), keep_free_(KeepFreeBlocks(limits)), block_size_(limits.block_size) {}
  void Describe(ChoiceTraits* traits) const override { traits->needs_predictor = true; }
  KvDemand Demand(const StepView& view, SlotId slot, int32_t) const override {
    const int32_t prompt = view.seq.known_committed[slot];
    if (!model_->Update(view).promises) return {prompt, keep_free_};
    const int64_t answer = model_->ExpectedTokens(view, slot);
    return {prompt, std::max<int64_t>(keep_free_, (answer + block_size_ - 1) / block_size_)};
  }

 private:
  const std::shared_ptr<PromiseModel> model_;
  const int64_t keep_free_;
  const int32_t block_size_;
};

}  // namespace

std::unique_ptr<Admission> MakePromiseAdmission(const SchedulerLimits& limits) {
  return std::make_unique<PromiseAdmission>(limits);
}

}  // namespace tactus::core
