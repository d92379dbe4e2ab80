#include "sched/running_by_rank.h"

#include <algorithm>

namespace tactus::sched {

RunningByRank::RunningByRank(int32_t slot_capacity)
    : ranked_(slot_capacity), filed_(static_cast<size_t>(slot_capacity)) {}

void RunningByRank::Apply(const StepView& view, const Order& order) {
  for (const SequenceChange& change : view.changes) File(view, order, change.slot);
  for (const SlotId slot : order.Reranked(view)) File(view, order, slot);
}

void RunningByRank::Rebuild(const StepView& view, const Order& order) {
  ranked_.Clear();
  std::fill(filed_.begin(), filed_.end(), RankedSlot());
  for (const SlotId slot : view.running) File(view, order, slot);
}

// As the sequence stands now: whatever else has happened to the slot since then is over.
void RunningByRank::File(const StepView& view, const Order& order, SlotId slot) {
  RankedSlot& filed = filed_[static_cast<size_t>(slot)];
  RankedSlot now;
  if (view.seq.HoldsKv(slot)) now = {order.ranks() ? order.RankOf(view, slot) : 0, view.seq.arrival_order[slot], slot};
  if (now == filed) return;
  if (filed.slot != kNoSlot) ranked_.Remove(filed);
  if (now.slot != kNoSlot) ranked_.Insert(now);
  filed = now;
}

}  // namespace tactus::sched
