// The last to arrive among the sequences of lowest rank loses its KV (vLLM; Kwon et al., SOSP 2023, section 4.5). The
// KV is recomputed, or copied to host memory and back when the sequence continues; if no swap space is left (or
// configured), a victim of swap is recomputed as well.
//
// proactive-swap, as in FastServe: a lower-ranked sequence gives way to a waiting one before there is a shortage, and
// with compositions that pause sequences a few blocks are kept free ahead of need.
#include "core/sched/choices.h"
#include "core/sched/preemption/last_of_least_valued.h"

namespace tactus::core {
namespace {

class Youngest : public Preemption {
 public:
  explicit Youngest(PreemptMode mode) : mode_(mode) {}
  void Describe(ChoiceTraits* traits) const override { traits->can_preempt = true; }
  PreemptMode Mode() const override { return mode_; }
  SlotId Victim(const StepView& view, const PlanBuilder& plan, const Order& order, SlotId) const override {
    return LastOfLeastValued(view.running_by_arrival, view, plan, order);
  }
  bool TakesTheLast() const override { return true; }

 private:
  const PreemptMode mode_;
};

class ProactiveSwap final : public Youngest {
 public:
  ProactiveSwap() : Youngest(PreemptMode::kSwap) {}
  void Describe(ChoiceTraits* traits) const override { traits->can_preempt = traits->makes_room = true; }
  bool GivesWay(const StepView& view, const Order& order, SlotId running, SlotId newcomer) const override {
    return order.Outranks(view, newcomer, running);
  }
  bool FreesAhead() const override { return true; }
};

}  // namespace

std::unique_ptr<Preemption> MakeYoungestRecompute(const SchedulerLimits&) {
  return std::make_unique<Youngest>(PreemptMode::kRecompute);
}
std::unique_ptr<Preemption> MakeSwap(const SchedulerLimits&) {
  return std::make_unique<Youngest>(PreemptMode::kSwap);
}
std::unique_ptr<Preemption> MakeProactiveSwap(const SchedulerLimits&) {
  return std::make_unique<ProactiveSwap>();
}

}  // namespace tactus::core
