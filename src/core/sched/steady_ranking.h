// Sorts the running sequences by rank for every step: for orders whose ranks all change with every token, with
// compositions that never pause a sequence, so that only a few hundred run. The last step's sequences start from their
// last places, so few have to move.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/growing_vector.h"
#include "core/sched/index/steady_sort.h"
#include "core/sched/policy.h"
#include "core/sched/running_by_rank.h"

namespace tactus::core {

class SteadyRanking {
 public:
  SteadyRanking(int32_t slot_capacity, int32_t most_running) {
    mark_.reserve(static_cast<size_t>(slot_capacity));
    ranked_.reserve(static_cast<size_t>(most_running));
  }

  // `slots`: all running sequences; `tie`: unique, decides between equal ranks.
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
  const std::vector<RankedSlot>& ranked() const { return ranked_; }  // as of the last Sort

 private:
  // Appends the slots that are not in ranked_ yet.
  void Append(const StepView& view, const Order& order, std::span<const SlotId> slots, SequenceColumn<int64_t> tie) {
    const int64_t there = ++marks_;
    MakeUpTo(&mark_, static_cast<size_t>(view.seq.slots) - 1);
    for (const RankedSlot& r : ranked_) mark_[static_cast<size_t>(r.slot)] = there;
    for (const SlotId slot : slots) {
      if (mark_[static_cast<size_t>(slot)] != there) ranked_.push_back({order.RankOf(view, slot), tie[slot], slot});
    }
  }

  std::vector<RankedSlot> ranked_;
  std::vector<int64_t> mark_;  // [SequenceColumns::slots], with room for all
  int64_t marks_ = 0;
};

}  // namespace tactus::core
