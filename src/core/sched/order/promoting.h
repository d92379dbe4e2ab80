// An index of the waiting sequences for orders with a bound on starvation: a sequence that was not served for too long
// is promoted, and promoted ones go before all others, longest unserved first. Promotion moves nothing in the queue: a
// second index has all waiting sequences by their last service, and the promoted ones are its front.
#pragma once

#include <vector>

#include "core/sched/order/sorted_queue.h"

namespace tactus::core {

class PromotingOrder : public KeyedOrder {
 public:
  explicit PromotingOrder(int32_t slot_capacity);
  bool ranks() const final { return true; }
  bool rank_decides() const final { return true; }
  void Apply(const StepView& view) override;
  void Rebuild(const StepView& view) override;
  void Start(const StepView& view) override;
  SlotId Next() final;
  void Planned(const StepView&, std::span<const StepItem>) override { reranked_.clear(); }
  std::span<const SlotId> Reranked(const StepView&) const final { return reranked_; }

 protected:
  // Time since which it has not been served: constant for a waiting sequence, and no later for a promoted one than for
  // one that is not.
  virtual int64_t SinceOf(const StepView& view, SlotId slot) const = 0;
  virtual bool IsPromoted(const StepView& view, SlotId slot) const = 0;
  // Call when the rank of a running sequence changes, also by the passage of time. At most three times per sequence
  // between two plans.
  void NoteReranked(SlotId slot) { reranked_.push_back(slot); }
  // RankOf must put promoted sequences first, by SinceOf; other ranks must not change while a sequence waits.
  QueueKey KeyOf(const StepView& view, SlotId slot) const final {
    return {RankOf(view, slot), 0, view.seq.arrival_order[slot]};
  }

  // Visits the waiting sequences that have not been served since `until`, longest unserved first.
  template <class Visit>
  void ForUnservedSince(int64_t until, Visit visit) const {
    SortedBlocks<Wait>::Cursor cursor;
    for (const Wait* wait = waits_.Next(&cursor); wait != nullptr && wait->since <= until; wait = waits_.Next(&cursor))
      visit(wait->slot);
  }

 private:
  struct Wait {
    int64_t since = 0, arrival = 0;
    SlotId slot = kNoSlot;
    bool operator==(const Wait&) const = default;
    bool operator<(const Wait& other) const {
      return since != other.since ? since < other.since : arrival < other.arrival;
    }
  };
  Wait WaitOf(const StepView& view, SlotId slot) const {
    return {SinceOf(view, slot), view.seq.arrival_order[slot], slot};
  }

  SortedBlocks<Wait> waits_;
  std::vector<Wait> filed_;  // [capacity] the entry of a waiting slot
  std::vector<SlotId> reranked_;
  // The walk:
  const StepView* view_ = nullptr;
  SortedBlocks<Wait>::Cursor promoted_;  // next of the promoted
  bool all_promoted_seen_ = false;
};

}  // namespace tactus::core
