// Reserves only the blocks of the next chunk (vLLM V1). Preemption resolves shortages.
#include "core/sched/choices.h"

namespace tactus::core {
namespace {

class ChunkFits final : public Admission {
 public:
  explicit ChunkFits(const SchedulerLimits& limits) : keep_free_(KeepFreeBlocks(limits)) {}
  void Describe(ChoiceTraits*) const override {}
  KvDemand Demand(const StepView&, SlotId, int32_t first_chunk_end) const override {
    return {first_chunk_end, keep_free_};
  }

 private:
  const int64_t keep_free_;
};

}  // namespace

std::unique_ptr<Admission> MakeChunkFits(const SchedulerLimits& limits) {
  return std::make_unique<ChunkFits>(limits);
}

}  // namespace tactus::core
