// Shuffled: compute- and memory-heavy requests are mixed, and equal prefixes are apart. A baseline. Preempted sequences
// go back to the queue's head.
#include "base/hash.h"
#include "core/sched/choices.h"
#include "core/sched/order/sorted_queue.h"

namespace tactus::core {
namespace {

constexpr Knob<int64_t> kSeed{
    "random-seed", 0, {.min = 0, .max = 1 << 30, .help = "order random: seed of the shuffle"}};

class RandomOrder final : public KeyedOrder {
 public:
  explicit RandomOrder(const SchedulerLimits& limits)
      : KeyedOrder(limits.slot_capacity), seed_(static_cast<uint64_t>(limits.policy[kSeed])) {}

 protected:
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    const int64_t arrival = view.seq.arrival_order[slot];
    const uint64_t drawn = MixHash(MixHash(0, seed_), static_cast<uint64_t>(arrival));
    return {view.seq.preemptions[slot] > 0 ? 0 : 1, static_cast<int64_t>(drawn >> 1), arrival};
  }

 private:
  const uint64_t seed_;
};

}  // namespace

constinit const KnobList kRandomKnobs{&kSeed};

std::unique_ptr<Order> MakeRandomOrder(const SchedulerLimits& limits) {
  return std::make_unique<RandomOrder>(limits);
}

}  // namespace tactus::core
