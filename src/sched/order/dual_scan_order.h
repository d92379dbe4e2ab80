// What blend and balance share: the waiting sequences lie in a row, the compute-heavy on the left, and are taken from
// both ends as a DualScanner says. Preempted ones go before the row, then those that no plan has placed, first come,
// first served; the row follows.
//
// It remembers nothing: what a running sequence counts for follows from its place in the plan. What each end has is
// summed once per plan, where anybody asks for the queue.
#pragma once

#include <vector>

#include "sched/dual_scanner.h"
#include "sched/order/sorted_queue.h"

namespace tactus::sched {

class DualScanOrder : public KeyedOrder {
 public:
  explicit DualScanOrder(const SchedulerLimits& limits);
  void Apply(const StepView& view) override;
  void Rebuild(const StepView& view) override;
  void Start(const StepView& view) override;
  SlotId Next() override;
  // Who runs goes before who waits, by arrival.
  bool Before(const StepView& view, SlotId a, SlotId b) const override;

 protected:
  // Where a planned sequence lies in the row: lower is further left.
  virtual int64_t FromLeft(const PlannedPlace& place) const = 0;
  QueueKey KeyOf(const StepView& view, SlotId slot) const final;

 private:
  // The queue as it is walked from this plan's view: found as far as somebody has asked.
  struct Walk {
    std::vector<SlotId> slots;
    DualScanner scanner;  // what runs, and what the walk has passed
    Cursor left, right;
    SlotId left_end = kNoSlot, right_end = kNoSlot;  // of the row, where the cursors have been
    bool begun = false;
  };

  bool InRow(const StepView& view, SlotId slot) const {
    return view.seq.preemptions[slot] == 0 && view.seq.planned[slot].position >= 0;
  }
  // One more slot. False: there is none.
  bool Extend(const StepView& view) const;
  int64_t PlaceOf(const StepView& view, SlotId slot) const;

  const StepView* view_ = nullptr;  // of the walk
  size_t next_ = 0;
  mutable Walk walk_;                   // Before asks for what Next would say
  mutable std::vector<int32_t> place_;  // [capacity] in the walk, where walk_.slots has it there
};

}  // namespace tactus::sched
