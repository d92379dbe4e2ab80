// Swap to host memory: the KV of the victim is copied to the host and back when it starts again, instead of being
// computed again. Where no swap space is left (or none was asked for) the victim is recomputed. Two values: on a
// shortage only, with vLLM's victim (Kwon et al., SOSP 2023, section 4.5); and proactively, as FastServe does: whoever
// the order outranks gives way to a waiting sequence before there is a shortage.
#include "sched/choices.h"
#include "sched/plan.h"

namespace tactus::sched {
namespace {

class Swap : public Preemption {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->can_preempt = true; }
  PreemptMode Mode() const override { return PreemptMode::kSwap; }
  // The last to arrive, among those that the order values least.
  SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order& order, SlotId) const override {
    SlotId victim = kNoSlot;
    for (auto it = view.running_by_arrival.rbegin(); it != view.running_by_arrival.rend(); ++it) {
      if (plan.Touched(*it)) continue;
      if (victim == kNoSlot || order.Outranks(view, victim, *it)) victim = *it;
    }
    return victim;
  }
};

class ProactiveSwap final : public Swap {
 public:
  void Describe(ChoiceTraits* traits) const override { traits->can_preempt = traits->makes_room = true; }
  bool GivesWay(const StepView& view, const Order& order, SlotId running, SlotId newcomer) const override {
    return order.Outranks(view, newcomer, running);
  }
};

}  // namespace

std::unique_ptr<Preemption> MakeSwap(const SchedulerLimits&) {
  return std::make_unique<Swap>();
}
std::unique_ptr<Preemption> MakeProactiveSwap(const SchedulerLimits&) {
  return std::make_unique<ProactiveSwap>();
}

}  // namespace tactus::sched
