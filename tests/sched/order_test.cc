// The orders' index against a plain sort, over random arrivals, admissions, preemptions and cancels.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "sched/choices.h"
#include "seq/sequence_table.h"

namespace tactus::sched {
namespace {

StepView ViewOf(SequenceTable* t) {
  StepView view;
  view.seq = t->columns();
  view.waiting = t->waiting();
  view.running = t->running();
  view.changes = t->changes();
  return view;
}

std::vector<SlotId> Walk(Order* order, const StepView& view) {
  std::vector<SlotId> slots;
  order->Start(view);
  for (SlotId s = order->Next(); s != kNoSlot; s = order->Next()) slots.push_back(s);
  return slots;
}

void CheckAgainstSort(std::unique_ptr<Order> (*make)(const SchedulerLimits&), bool by_priority) {
  SchedulerLimits limits;
  limits.slot_capacity = 40;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    SequenceTable t(limits.slot_capacity);
    auto order = make(limits);
    order->Rebuild(ViewOf(&t));
    for (int step = 0; step < 200; ++step) {
      for (int i = 0; i < 6; ++i) {
        const double what = rng.Uniform();
        const auto waiting = t.waiting();
        const auto running = t.running();
        if (what < 0.45 && t.free_slots() > 0) {
          SequenceSpec spec;
          spec.prompt_tokens = 4;
          spec.max_output_tokens = 4;
          spec.priority = static_cast<int32_t>(rng.UniformInt(-2, 2));
          t.Add(spec, step);
        } else if (what < 0.65 && !waiting.empty()) {
          t.Admit(waiting[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(waiting.size()) - 1))], 0);
        } else if (what < 0.8 && !running.empty()) {
          const SlotId s = running[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(running.size()) - 1))];
          if (t.holds_kv(s)) t.Preempt(s, step);
          t.Compact();
        } else if (what < 0.9 && !waiting.empty()) {
          const SlotId s = waiting[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(waiting.size()) - 1))];
          t.Finish(s);
          t.Free(s);
        } else if (!running.empty()) {
          const SlotId s = running.back();
          t.Finish(s);
          t.Free(s);
          t.Compact();
        }
      }
      const StepView view = ViewOf(&t);
      order->Apply(view);
      t.ClearChanges();
      std::vector<SlotId> expected(view.waiting.begin(), view.waiting.end());
      const auto key = [&](SlotId s) {
        return std::tuple(by_priority ? view.seq.priority[s] : 0, view.seq.preemptions[s] > 0 ? 0 : 1, view.seq.arrival_order[s]);
      };
      std::sort(expected.begin(), expected.end(), [&](SlotId a, SlotId b) { return key(a) < key(b); });
      ASSERT_EQ(Walk(order.get(), view), expected) << "seed " << seed << " step " << step;
      auto fresh = make(limits);
      fresh->Rebuild(view);
      ASSERT_EQ(Walk(fresh.get(), view), expected);
    }
  }
}

TEST(Order, FcfsKeepsArrivalAndPutsThePreemptedFirst) { CheckAgainstSort(MakeFcfsOrder, false); }
TEST(Order, PriorityComesBeforeArrival) { CheckAgainstSort(MakePriorityOrder, true); }

}  // namespace
}  // namespace tactus::sched
