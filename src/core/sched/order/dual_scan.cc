// BlendServe's dual scanner (section 3.4): two pointers over a job's plan, whose subtrees are sorted by density, one
// from the compute-heavy left end and one from the memory-heavy right end. The densities of the subtrees at the
// pointers, rho_L and rho_R, divide the KV memory M so that both ends together are as dense as the job:
//
//   M_L + M_R = M        M_L rho_L + M_R rho_R = M rho_job
//
// A request of either end starts if its end then holds at most its share. If both have room, the emptier end goes
// first. An end without waiting requests is idle, and lends its share to the other.
//
// Ours, where the paper is silent: an end holds what its running sequences have in the KV memory now, shared prefixes
// counted for each, as in the densities (--dual-scan-caps expected: their mean holdings, by the plan). A share below 0
// is 0. An end that holds nothing starts one request even if its share is smaller. A preempted sequence is the first of
// its end again. Requests without an end go first, under no share.
#include <algorithm>
#include <array>

#include "core/sched/choices.h"
#include "core/sched/order/sorted_queue.h"

namespace tactus::core {
namespace {

constexpr Knob<std::string> kCaps{"dual-scan-caps",
                                  "held",
                                  {.choices = "held|expected",
                                   .help = "order blend-dual-scan: an end's share limits what its sequences hold now "
                                           "(held), or their mean by the plan (expected)"}};

// Keys order the queue as the plan: without an end, left, right.
constexpr int64_t kNoEndKey = 0, kLeftRetractedKey = 1, kLeftKey = 2, kRightKey = 3, kRightRetractedKey = 4;

class DualScanOrder final : public KeyedOrder {
 public:
  explicit DualScanOrder(const SchedulerLimits& limits)
      : KeyedOrder(limits.slot_capacity),
        kv_tokens_(static_cast<double>(limits.blocks_total * limits.block_size)),
        expected_(limits.policy[kCaps] == "expected") {}

  void Start(const StepView& view) override {
    columns_ = view.seq;
    left_at_ = Front();
    right_at_ = Back();
    head_ = {kNoSlot, Forward(&left_at_), Backward(&right_at_)};
    held_ = {};
    nothing_runs_ = view.running.empty();
    for (const SlotId slot : view.running) {
      if (view.seq.HoldsKv(slot)) At(held_, EndOf(slot)) += TokensOf(slot);
    }
  }

  SlotId Next() override {
    const SlotId first = At(head_, PlanEnd::kLeft);
    if (first != kNoSlot && EndOf(first) == PlanEnd::kNone) return Give(PlanEnd::kLeft);
    const PlanEnd end = ChooseEnd();
    return end == PlanEnd::kNone ? kNoSlot : Give(end);
  }

 protected:
  QueueKey KeyOf(const StepView& view, SlotId slot) const override {
    const PlannedPlace& place = view.seq.planned[slot];
    const bool retracted = view.seq.preemptions[slot] > 0;
    const int64_t arrival = view.seq.arrival_order[slot];
    switch (place.end) {
      case PlanEnd::kNone:
        break;
      case PlanEnd::kLeft:
        return {retracted ? kLeftRetractedKey : kLeftKey, place.position, arrival};
      case PlanEnd::kRight:
        return {retracted ? kRightRetractedKey : kRightKey, -int64_t{place.position}, arrival};
    }
    return {kNoEndKey, 0, arrival};
  }

 private:
  template <class T>
  static T& At(std::array<T, 3>& of_end, PlanEnd end) {
    return of_end[static_cast<size_t>(end)];
  }
  PlanEnd EndOf(SlotId slot) const { return columns_.planned[slot].end; }
  double TokensOf(SlotId slot) const {
    return expected_ ? columns_.planned[slot].kv_tokens : columns_.known_committed[slot];
  }
  bool Waits(PlanEnd end) {
    const SlotId slot = At(head_, end);
    return slot != kNoSlot && EndOf(slot) == end;
  }

  // The left end's share of the KV memory.
  double LeftShare() {
    const double left = columns_.planned[At(head_, PlanEnd::kLeft)].density * 1e-6;
    const double right = columns_.planned[At(head_, PlanEnd::kRight)].density * 1e-6;
    return left > right ? std::clamp((1 - right) / (left - right), 0.0, 1.0) : 0.5;
  }

  // kNone: neither has room, or none waits.
  PlanEnd ChooseEnd() {
    const bool left = Waits(PlanEnd::kLeft), right = Waits(PlanEnd::kRight);
    if (!left || !right) return left ? PlanEnd::kLeft : right ? PlanEnd::kRight : PlanEnd::kNone;
    const double left_tokens = kv_tokens_ * LeftShare(), right_tokens = kv_tokens_ - left_tokens;
    const bool left_fits = Fits(PlanEnd::kLeft, left_tokens), right_fits = Fits(PlanEnd::kRight, right_tokens);
    if (left_fits != right_fits) return left_fits ? PlanEnd::kLeft : PlanEnd::kRight;
    if (left_fits) {
      return At(held_, PlanEnd::kLeft) * right_tokens <= At(held_, PlanEnd::kRight) * left_tokens ? PlanEnd::kLeft
                                                                                                  : PlanEnd::kRight;
    }
    if (!nothing_runs_) return PlanEnd::kNone;
    return left_tokens >= right_tokens ? PlanEnd::kLeft : PlanEnd::kRight;
  }
  bool Fits(PlanEnd end, double share_tokens) {
    const double held = At(held_, end);
    return share_tokens > 0 && (held == 0 || held + TokensOf(At(head_, end)) <= share_tokens);
  }

  // Returns the head of the end, and counts it as started.
  SlotId Give(PlanEnd end) {
    SlotId& head = At(head_, end);
    const SlotId given = head;
    At(held_, EndOf(given)) += TokensOf(given);
    nothing_runs_ = false;
    head = end == PlanEnd::kLeft ? Forward(&left_at_) : Backward(&right_at_);
    return given;
  }

  const double kv_tokens_;
  const bool expected_;
  // State of the current plan.
  SequenceColumns columns_;
  Cursor left_at_, right_at_;
  std::array<SlotId, 3> head_{};  // [PlanEnd] the next request from the left, from the right
  std::array<double, 3> held_{};  // [PlanEnd] tokens
  bool nothing_runs_ = false;
};

}  // namespace

constinit const KnobList kDualScanKnobs{&kCaps};

std::unique_ptr<Order> MakeDualScanOrder(const SchedulerLimits& limits) {
  return std::make_unique<DualScanOrder>(limits);
}

}  // namespace tactus::core
