// An index over the waiting sequences for orders with a bound on starvation: whoever has not been served for too long
// is promoted, and the promoted go before all others, longest unserved first. Promotion moves nothing in the queue:
// beside the sorted queue all who wait stand in a second one by when they were last served, whose front the promoted
// are.
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
  // Since when it has not been served: of waiting sequences all the same while they wait, and no later for one that is
  // promoted than for one that is not.
  virtual int64_t SinceOf(const StepView& view, SlotId slot) const = 0;
  virtual bool IsPromoted(const StepView& view, SlotId slot) const = 0;
  // For whoever changes the rank of a running sequence, or finds that time has. At most three times for each sequence
  // between two plans.
  void NoteReranked(SlotId slot) { reranked_.push_back(slot); }
  // RankOf tells the promoted first and by SinceOf; the other ranks must not change while one waits.
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
  std::vector<Wait> filed_;  // [capacity] what a waiting slot was filed under
  std::vector<SlotId> reranked_;
  // Of the walk:
  const StepView* view_ = nullptr;
  SortedBlocks<Wait>::Cursor promoted_;  // next of the promoted
  bool all_promoted_seen_ = false;
};

}  // namespace tactus::core
