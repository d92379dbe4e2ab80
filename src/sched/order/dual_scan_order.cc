#include "sched/order/dual_scan_order.h"

namespace tactus::sched {

DualScanOrder::DualScanOrder(const SchedulerLimits& limits)
    : KeyedOrder(limits.slot_capacity), place_(static_cast<size_t>(limits.slot_capacity), 0) {
  walk_.slots.reserve(place_.size());
}

void DualScanOrder::Apply(const StepView& view) {
  KeyedOrder::Apply(view);
  walk_.begun = false;
}

void DualScanOrder::Rebuild(const StepView& view) {
  KeyedOrder::Rebuild(view);
  walk_.begun = false;
}

void DualScanOrder::Start(const StepView& view) {
  view_ = &view;
  next_ = 0;
}

SlotId DualScanOrder::Next() {
  if ((!walk_.begun || next_ == walk_.slots.size()) && !Extend(*view_)) return kNoSlot;
  return walk_.slots[next_++];
}

QueueKey DualScanOrder::KeyOf(const StepView& view, SlotId slot) const {
  const int64_t arrival = view.seq.arrival_order[slot];
  if (view.seq.preemptions[slot] > 0) return {0, 0, arrival};
  if (!InRow(view, slot)) return {1, 0, arrival};
  return {2, FromLeft(view.seq.planned[slot]), arrival};
}

bool DualScanOrder::Extend(const StepView& view) const {
  if (!walk_.begun) {
    walk_.begun = true;
    walk_.slots.clear();
    walk_.scanner = DualScanner();
    for (const SlotId slot : view.running) {
      if (view.seq.HoldsKv(slot) && view.seq.planned[slot].position >= 0) {
        walk_.scanner.Hold(view.seq.planned[slot]);
      }
    }
    walk_.left = Cursor();
    walk_.right = End();
    walk_.left_end = NextAt(&walk_.left);
    walk_.right_end = PreviousAt(&walk_.right);
  }
  // As many have been taken as there are: the ends have met.
  if (walk_.left_end == kNoSlot || walk_.slots.size() == view.waiting.size()) return false;
  const bool from_right =
      InRow(view, walk_.left_end) &&
      walk_.scanner.Next(view.seq.planned[walk_.left_end], view.seq.planned[walk_.right_end]) == ScanSide::kRight;
  const SlotId slot = from_right ? walk_.right_end : walk_.left_end;
  if (view.seq.planned[slot].position >= 0) walk_.scanner.Hold(view.seq.planned[slot]);
  (from_right ? walk_.right_end : walk_.left_end) = from_right ? PreviousAt(&walk_.right) : NextAt(&walk_.left);
  place_[static_cast<size_t>(slot)] = static_cast<int32_t>(walk_.slots.size());
  walk_.slots.push_back(slot);
  return true;
}

int64_t DualScanOrder::PlaceOf(const StepView& view, SlotId slot) const {
  const auto found = [&] {
    const auto place = static_cast<size_t>(place_[static_cast<size_t>(slot)]);
    return walk_.begun && place < walk_.slots.size() && walk_.slots[place] == slot;
  };
  while (!found()) {
    if (!Extend(view)) return static_cast<int64_t>(place_.size());
  }
  return place_[static_cast<size_t>(slot)];
}

bool DualScanOrder::Before(const StepView& view, SlotId a, SlotId b) const {
  const bool a_waits = view.seq.state[a] == SeqState::kWaiting, b_waits = view.seq.state[b] == SeqState::kWaiting;
  if (a_waits != b_waits) return b_waits;
  if (a_waits && b_waits) return PlaceOf(view, a) < PlaceOf(view, b);
  return view.seq.arrival_order[a] < view.seq.arrival_order[b];
}

}  // namespace tactus::sched
