// Preemption by turns, as in Learning to Rank and FastServe: in every step all sequences, running or waiting, are
// looked at in the order's order, and the first that fit the budget and the --max-num-seqs places make up the step. A
// running sequence that is left out is paused: it keeps its KV and goes on when its turn comes. KV changes hands only
// where it is short: whoever goes next takes it from the order's last, running sequences by what the preemption says of
// a shortage, waiting ones by whom it lets give way.
//
// A prompt that does not fit holds back those behind it that have not started; decodes behind it go on.
#include <algorithm>
#include <vector>

#include "sched/choices.h"
#include "sched/context.h"

namespace tactus::sched {
namespace {

class Ranked final : public Composition {
 public:
  Ranked(const SchedulerLimits& limits, bool whole)
      : whole_(whole), last_seen_(static_cast<size_t>(limits.slot_capacity), 0) {
    const auto most = static_cast<size_t>(limits.slot_capacity);
    for (std::vector<RankedSlot>* v : {&ranked_, &moved_}) v->reserve(most);
    running_.reserve(most);
  }
  void Describe(ChoiceTraits* traits) const override {
    traits->splits_prompts = !whole_;
    traits->pauses = true;
  }

  void Compose(StepContext& step) override {
    SortRunning(step);
    tail_ = running_;
    step.order.Start(step.view);
    SlotId next = step.view.waiting.empty() ? kNoSlot : step.order.Next();
    size_t i = 0;
    while (step.plan.tokens_left() > 0 && step.plan.places_left() > 0 && (i < running_.size() || next != kNoSlot)) {
      if (i < running_.size() && (next == kNoSlot || step.order.Before(step.view, running_[i], next))) {
        const SlotId slot = running_[i++];
        if (!step.plan.AddDecode(slot)) step.Run(slot, kNoLimit, whole_ && !step.IsDecode(slot));
      } else {
        next = Start(step, next) ? step.order.Next() : kNoSlot;
      }
    }
    step.FreeAhead(tail_);
  }

 private:
  // Few change places from step to step, of possibly thousands that hold KV: those that keep theirs stay where they
  // are, and the others, sorted, are put between them.
  void SortRunning(const StepContext& step) {
    const bool ranks = step.order.ranks();
    const int64_t* const arrival = step.view.seq.arrival_order;
    const auto rank_of = [&step, ranks](SlotId slot) { return ranks ? step.order.RankOf(step.view, slot) : 0; };
    const int64_t running = ++marks_, kept = ++marks_;
    for (const SlotId slot : step.view.running_by_arrival) last_seen_[static_cast<size_t>(slot)] = running;
    size_t places = 0;
    for (const RankedSlot& r : ranked_) {
      int64_t& seen = last_seen_[static_cast<size_t>(r.slot)];
      if (seen != running || rank_of(r.slot) != r.rank || arrival[r.slot] != r.tie) continue;
      seen = kept;
      ranked_[places++] = r;
    }
    moved_.clear();
    if (places < step.view.running_by_arrival.size()) {
      for (const SlotId slot : step.view.running_by_arrival) {
        if (last_seen_[static_cast<size_t>(slot)] != kept) moved_.push_back({rank_of(slot), arrival[slot], slot});
      }
    }
    std::sort(moved_.begin(), moved_.end());
    MergeMoved(places);
    running_.resize(ranked_.size());
    for (size_t i = 0; i < ranked_.size(); ++i) running_[i] = ranked_[i].slot;
  }
  // The moved into the first `kept` of the ranked, from the end on.
  void MergeMoved(size_t kept) {
    ranked_.resize(kept + moved_.size());
    auto end = ranked_.begin() + static_cast<ptrdiff_t>(kept);
    auto to = ranked_.end();
    for (auto moved = moved_.rbegin(); moved != moved_.rend(); ++moved) {
      const auto behind = std::upper_bound(ranked_.begin(), end, *moved);
      to = std::move_backward(behind, end, to);
      end = behind;
      *--to = *moved;
    }
  }

  bool Start(StepContext& step, SlotId slot) {
    if (step.plan.has_preempted()) return false;  // nothing starts in a step that had to preempt
    AddResult result = step.Admit(slot, kNoLimit, whole_);
    if (result == AddResult::kNoBlocks && step.MakeRoomFor(slot, &tail_)) result = step.Admit(slot, kNoLimit, whole_);
    return result == AddResult::kAdded;
  }

  const bool whole_;
  std::vector<RankedSlot> ranked_;  // the running sequences in order, of this step and until the next
  std::vector<RankedSlot> moved_;   // scratch
  std::vector<int64_t> last_seen_;  // [capacity] a mark of the pass that saw the slot
  int64_t marks_ = 0;
  std::vector<SlotId> running_;   // of the step, in order
  std::span<const SlotId> tail_;  // of it, up to the last that has not given way
};

}  // namespace

std::unique_ptr<Composition> MakeRanked(const SchedulerLimits& limits) {
  return std::make_unique<Ranked>(limits, false);
}
std::unique_ptr<Composition> MakeRankedWhole(const SchedulerLimits& limits) {
  return std::make_unique<Ranked>(limits, true);
}

}  // namespace tactus::sched
