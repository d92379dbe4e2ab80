#include "core/sched/running_by_rank.h"

#include <algorithm>

#include "base/prefetch.h"

namespace tactus::core {

RunningByRank::RunningByRank(int32_t slot_capacity)
    : ranked_(slot_capacity), filed_(static_cast<size_t>(slot_capacity)) {}

void RunningByRank::Apply(const StepView& view, const Order& order) {
  constexpr size_t kAhead = 8;
  for (size_t i = 0; i < view.changes.size(); ++i) {
    // The order has just read the rest of what File reads.
    if (i + kAhead < view.changes.size()) Prefetch(&filed_[static_cast<size_t>(view.changes[i + kAhead].slot)]);
    File(view, order, view.changes[i].slot);
  }
  const std::span<const SlotId> reranked = order.Reranked(view);
  for (size_t i = 0; i < reranked.size(); ++i) {
    if (i + kAhead < reranked.size()) PrefetchFile(view, reranked[i + kAhead]);
    File(view, order, reranked[i]);
  }
}

void RunningByRank::Rebuild(const StepView& view, const Order& order) {
  ranked_.Clear();
  std::fill(filed_.begin(), filed_.end(), RankedSlot());
  for (const SlotId slot : view.running) File(view, order, slot);
}

void RunningByRank::PrefetchFile(const StepView& view, SlotId slot) const {
  Prefetch(&filed_[static_cast<size_t>(slot)]);
  Prefetch(view.notes.bytes + static_cast<size_t>(slot) * view.notes.stride);
  Prefetch(&view.seq.arrival_order[slot]);
}

// Files the sequence by its current state; earlier changes of the slot no longer matter.
void RunningByRank::File(const StepView& view, const Order& order, SlotId slot) {
  RankedSlot& filed = filed_[static_cast<size_t>(slot)];
  RankedSlot now;
  if (view.seq.HoldsKv(slot)) now = {order.ranks() ? order.RankOf(view, slot) : 0, view.seq.arrival_order[slot], slot};
  if (now == filed) return;
  if (filed.slot != kNoSlot) ranked_.Remove(filed);
  if (now.slot != kNoSlot) ranked_.Insert(now);
  filed = now;
}

}  // namespace tactus::core
