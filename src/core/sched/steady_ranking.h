// The running sequences sorted by rank anew for every step: for orders whose ranks all move with every token, and
// compositions that let nobody pause, so that few hundred run. Who ran in the last step begins at the place that it had
// then, so few have to move.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/sched/index/steady_sort.h"
#include "core/sched/policy.h"
#include "core/sched/running_by_rank.h"

namespace tactus::core {

class SteadyRanking {
 public:
  SteadyRanking(int32_t slot_capacity, int32_t most_running) : mark_(static_cast<size_t>(slot_capacity), 0) {
    ranked_.reserve(static_cast<size_t>(most_running));
  }

  // `slots`: those that run, all of them; `tie`: unique, decides between equals.
  void Sort(const StepView& view, const Order& order, std::span<const SlotId> slots, SequenceColumn<int64_t> tie) {
    size_t kept = 0;
    for (const RankedSlot& last : ranked_) {
      if (!view.seq.HoldsKv(last.slot) || tie[last.slot] != last.tie) continue;
      ranked_[kept++] = {order.RankOf(view, last.slot), last.tie, last.slot};
    }
    ranked_.resize(kept);
    if (kept < slots.size()) Append(view, order, slots, tie);
    SortSteady(&ranked_, std::less<>());
  }
  const std::vector<RankedSlot>& ranked() const { return ranked_; }  // as last sorted

 private:
  // Those that are not there yet.
  void Append(const StepView& view, const Order& order, std::span<const SlotId> slots, SequenceColumn<int64_t> tie) {
    const int64_t there = ++marks_;
    for (const RankedSlot& r : ranked_) mark_[static_cast<size_t>(r.slot)] = there;
    for (const SlotId slot : slots) {
      if (mark_[static_cast<size_t>(slot)] != there) ranked_.push_back({order.RankOf(view, slot), tie[slot], slot});
    }
  }

  std::vector<RankedSlot> ranked_;
  std::vector<int64_t> mark_;  // [slot_capacity]
  int64_t marks_ = 0;
};

}  // namespace tactus::core
