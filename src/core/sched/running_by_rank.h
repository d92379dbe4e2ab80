// An index of the running sequences for compositions that pause sequences: by rank, of equal ranks the oldest first.
// Thousands may hold KV where at most a few hundred compute in a step, so no operation scans all of them: only
// sequences that came, went or changed rank are filed again, and walks start at either end.
//
// Thread rule: engine thread only. Nothing allocates after construction. It does not change between two updates,
// whatever the plan does.
#pragma once

#include <vector>

#include "core/sched/index/sorted_blocks.h"
#include "core/sched/policy.h"

namespace tactus::core {

struct RankedSlot {
  int64_t rank = 0;
  int64_t tie = 0;  // unique
  SlotId slot = kNoSlot;
  bool operator==(const RankedSlot&) const = default;
  bool operator<(const RankedSlot& other) const { return rank != other.rank ? rank < other.rank : tie < other.tie; }
};

class RunningByRank {
 public:
  using Cursor = SortedBlocks<RankedSlot>::Cursor;

  explicit RunningByRank(int32_t slot_capacity);
  // Call before each plan, once the order has applied the view.
  void Apply(const StepView& view, const Order& order);
  // Drops all entries and starts from the view.
  void Rebuild(const StepView& view, const Order& order);

  // The next entry from the front, where a default cursor starts; null at the end. Its tie is its arrival order.
  const RankedSlot* Next(Cursor* cursor) const { return ranked_.Next(cursor); }
  // The next entry from the back; kNoSlot at the front.
  SlotId Previous(Cursor* cursor) const { return SlotOf(ranked_.Previous(cursor)); }
  Cursor End() const { return ranked_.End(); }

 private:
  static SlotId SlotOf(const RankedSlot* ranked) { return ranked != nullptr ? ranked->slot : kNoSlot; }
  void File(const StepView& view, const Order& order, SlotId slot);
  void PrefetchFile(const StepView& view, SlotId slot) const;  // prefetches what File reads

  SortedBlocks<RankedSlot> ranked_;
  std::vector<RankedSlot> filed_;  // [capacity] the entry in ranked_; slot kNoSlot: none
};

}  // namespace tactus::core
