#include "core/sched/context.h"

#include <algorithm>

#include "core/sched/newcomers.h"

namespace tactus::core {

StepContext::StepContext(const StepView& step_view, PlanBuilder* builder, Order* order_choice,
                         const Admission* admission, const Preemption* preemption,
                         const RunningByRank* running_in_order, StepScratch* scratch)
    : view(step_view),
      plan(*builder),
      order(*order_choice),
      running_by_rank(running_in_order),
      admission_(*admission),
      preemption_(*preemption),
      scratch_(*scratch) {
  if (running_by_rank != nullptr) victims_ = running_by_rank->End();
}

std::span<const SlotId> StepContext::Ranked(std::span<const SlotId> slots, SequenceColumn<int64_t> tie) {
  if (!order.ranks()) return slots;
  std::vector<SlotId>& in_order = scratch_.in_order;
  if (ranked_by_ == tie) return in_order;
  ranked_by_ = tie;
  scratch_.ranking.Sort(view, order, slots, tie);
  const std::vector<RankedSlot>& ranked = scratch_.ranking.ranked();
  in_order.resize(ranked.size());
  for (size_t i = 0; i < ranked.size(); ++i) in_order[i] = ranked[i].slot;
  return in_order;
}

AddResult StepContext::Run(SlotId slot, int32_t limit, bool whole) {
  for (;;) {
    const AddResult result = plan.AddRunning(slot, limit, whole);
    if (result != AddResult::kNoBlocks) return result;
    const SlotId victim = Victim(slot);
    if (victim == kNoSlot) return result;
    if (plan.Preempt(victim, preemption_.Mode()) == PreemptResult::kDeferred || victim == slot) return result;
  }
}

SlotId StepContext::Victim(SlotId needy) {
  if (running_by_rank == nullptr || !preemption_.TakesTheLast()) return preemption_.Victim(view, plan, order, needy);
  for (;;) {
    RunningByRank::Cursor look = victims_;
    const SlotId last = running_by_rank->Previous(&look);
    if (last == kNoSlot || !plan.Touched(last)) return last;
    victims_ = look;
  }
}

int32_t StepContext::AbortOutgrown() {
  int32_t aborted = 0;
  for (const SlotId slot : view.running) {
    if (!preemption_.Outgrown(view, slot) || plan.MakeRoom(slot, preemption_.Mode()) != PreemptResult::kFreed) continue;
    preemption_.Aborted(view, slot);
    ++aborted;
  }
  return aborted;
}

void StepContext::MakeRoom() {
  if (view.waiting.empty() || view.running.empty()) return;
  int64_t blocks = 0, tokens = 0;
  int32_t places = 0;
  Newcomers newcomers(view, &order, plan, true);
  for (SlotId slot = newcomers.Next(); slot != kNoSlot; slot = newcomers.Next()) {
    if (view.seq.flight[slot] != FlightState::kIdle || tokens >= plan.prefill_left()) return;
    tokens += view.seq.known_committed[slot] - view.seq.computed_committed[slot];
    const PlanBuilder::Demand demand = plan.StartDemand(slot, admission_);
    blocks += demand.blocks;
    ++places;
    if (!MakeRoomFor(slot, blocks + demand.keep_free, places)) return;
  }
}

bool StepContext::MakeRoomFor(SlotId newcomer, int64_t blocks, int32_t places) {
  int64_t free_blocks = plan.blocks_available(), free_places = plan.starts_left();
  if (free_blocks >= blocks && free_places >= places) return true;
  if (!order.ranks()) return false;
  RunningByArrival();
  // Those that the newcomer outranks are the last of these.
  const std::vector<RankedSlot>& running = scratch_.ranking.ranked();
  const int64_t rank = order.RankOf(view, newcomer);
  const auto gives_way = [&](const RankedSlot& r) {
    return !plan.Touched(r.slot) && preemption_.GivesWay(view, order, r.slot, newcomer);
  };
  int64_t gain = free_blocks, room = free_places;
  for (size_t i = running.size(); gain < blocks || room < places;) {
    if (i == 0 || running[--i].rank <= rank) return false;
    if (!gives_way(running[i])) continue;
    gain += plan.BlocksOf(running[i].slot);
    ++room;
  }
  bool now = true;
  for (size_t end = running.size(); free_blocks < blocks || free_places < places;) {
    while (end > 0 && running[end - 1].rank > rank && !gives_way(running[end - 1])) --end;
    if (end == 0 || running[end - 1].rank <= rank) break;
    // Among those of equal rank, the last in the queue's order.
    SlotId slot = running[end - 1].slot;
    for (size_t i = end - 1; i-- > 0 && running[i].rank == running[end - 1].rank;) {
      if (order.Before(view, slot, running[i].slot) && gives_way(running[i])) slot = running[i].slot;
    }
    const int64_t held = plan.BlocksOf(slot), before = plan.blocks_available();
    const bool freed = plan.MakeRoom(slot, preemption_.Mode()) == PreemptResult::kFreed;
    now &= freed;  // else it sits this step out and is preempted once it is idle
    free_blocks += freed ? plan.blocks_available() - before : held;
    ++free_places;
  }
  return now && free_blocks >= blocks;
}

bool StepContext::MakeRoomFor(SlotId newcomer, RunningByRank::Cursor* tail) {
  const PlanBuilder::Demand demand = StartDemand(newcomer);
  const int64_t blocks = demand.blocks + demand.keep_free;
  const auto gives_way = [&](SlotId slot) {
    return !plan.Touched(slot) && preemption_.GivesWay(view, order, slot, newcomer);
  };
  RunningByRank::Cursor look = *tail;
  for (int64_t gain = plan.blocks_available(); gain < blocks;) {
    const SlotId slot = running_by_rank->Previous(&look);
    if (slot == kNoSlot || !order.Outranks(view, newcomer, slot)) return false;
    if (gives_way(slot)) gain += plan.BlocksOf(slot);
  }
  bool now = true;
  while (plan.blocks_available() < blocks && now) {
    const SlotId slot = running_by_rank->Previous(tail);
    if (slot == kNoSlot) return false;
    PrefetchPreemptBefore(*tail);
    if (gives_way(slot)) now = plan.MakeRoom(slot, preemption_.Mode()) == PreemptResult::kFreed;
  }
  return now;
}

void StepContext::PrefetchPreemptBefore(RunningByRank::Cursor tail) const {
  for (int32_t look = PlanBuilder::kLooks - 1; look-- > 0;) {
    const SlotId slot = running_by_rank->Previous(&tail);
    if (slot == kNoSlot) return;
    plan.PrefetchPreempt(slot, look);
  }
}

void StepContext::FreeAhead(RunningByRank::Cursor tail) {
  if (!preemption_.FreesAhead()) return;
  while (plan.blocks_available() < plan.num_items()) {
    const SlotId slot = running_by_rank->Previous(&tail);
    if (slot == kNoSlot) return;
    if (plan.Touched(slot) || view.seq.flight[slot] != FlightState::kIdle) continue;
    if (!plan.SwapOut(slot)) return;  // no swap space is left
  }
}

void StepContext::RunDecodes() {
  for (const SlotId slot : RunningByArrival()) {
    if (!plan.AddDecode(slot) && IsDecode(slot)) Run(slot);
  }
}

void StepContext::RunPrefills(bool whole) {
  if (view.num_prefilling == 0) return;
  for (const SlotId slot : RunningByArrival()) {
    if (plan.prefill_left() <= 0) return;
    if (!IsDecode(slot)) Run(slot, kNoLimit, whole);
  }
}

void StepContext::AdmitInOrder(bool whole) {
  if (plan.has_preempted() || view.waiting.empty() || plan.starts_left() <= 0 || plan.prefill_left() <= 0) return;
  Newcomers waiting(view, &order, plan);
  for (SlotId slot = waiting.Next(); slot != kNoSlot; slot = waiting.Next()) {
    if (Admit(slot, kNoLimit, whole) != AddResult::kAdded) return;
  }
}

}  // namespace tactus::core
