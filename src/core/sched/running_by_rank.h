// An index over the running sequences in the order in which compositions that pause sequences give them their share: by
// rank, the oldest first where the order values them alike. Thousands may hold KV where no more than a few hundred
// compute in a step, so nothing here looks at all of them: what came and went and what the order values differently is
// filed anew, and both ends are walked from.
//
// Thread rule: engine thread only. Nothing allocates after construction. Between two updates it stays as it is,
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
  // Before each plan, once the order knows the view.
  void Apply(const StepView& view, const Order& order);
  // Forgets everything and starts from the view.
  void Rebuild(const StepView& view, const Order& order);

  // The next from the front on, which a default cursor is at; null behind the last. Its tie is its place in order of
  // arrival.
  const RankedSlot* Next(Cursor* cursor) const { return ranked_.Next(cursor); }
  // The next from the back on; kNoSlot before the first.
  SlotId Previous(Cursor* cursor) const { return SlotOf(ranked_.Previous(cursor)); }
  Cursor End() const { return ranked_.End(); }

 private:
  static SlotId SlotOf(const RankedSlot* ranked) { return ranked != nullptr ? ranked->slot : kNoSlot; }
  void File(const StepView& view, const Order& order, SlotId slot);
  void WillFile(const StepView& view, SlotId slot) const;  // asks for the memory that it will read

  SortedBlocks<RankedSlot> ranked_;
  std::vector<RankedSlot> filed_;  // [capacity] as it stands in ranked_; slot kNoSlot: it does not
};

}  // namespace tactus::core
