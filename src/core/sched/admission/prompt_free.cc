// DeepSpeed-FastGen: a prompt starts only if free blocks hold all of it, including what a preempted sequence must
// recompute, but it takes only the next chunk's blocks: decodes may take the others meanwhile.
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

class PromptFree final : public Admission {
 public:
  explicit PromptFree(const SchedulerLimits& limits)
      : keep_free_(KeepFreeBlocks(limits)), block_size_(limits.block_size) {}
  KvDemand Demand(const StepView& view, SlotId slot, int32_t first_chunk_end) const override {
    return {first_chunk_end, keep_free_ + Blocks(view.seq.known_committed[slot]) - Blocks(first_chunk_end)};
  }

 private:
  int64_t Blocks(int32_t tokens) const { return (int64_t{tokens} + block_size_ - 1) / block_size_; }

  const int64_t keep_free_;
  const int32_t block_size_;
};

}  // namespace

std::unique_ptr<Admission> MakePromptFree(const SchedulerLimits& limits) {
  return std::make_unique<PromptFree>(limits);
}

}  // namespace tactus::core
