#include "core/sched/order_bed.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "core/sched/choices.h"
#include "core/sched/running_by_rank.h"
#include "core/sched/steady_ranking.h"
#include "core/sched/view_of.h"

namespace tactus::testing {

using core::RankedSlot;
using core::RunningByRank;
using core::SteadyRanking;

std::vector<SlotId> Walk(Order* order, const StepView& view) {
  std::vector<SlotId> slots;
  order->Start(view);
  for (SlotId s = order->Next(); s != kNoSlot; s = order->Next()) slots.push_back(s);
  return slots;
}

namespace {

std::vector<SlotId> WalkRunning(const RunningByRank& running) {
  std::vector<SlotId> slots;
  RunningByRank::Cursor cursor;
  for (const RankedSlot* r = running.Next(&cursor); r != nullptr; r = running.Next(&cursor)) slots.push_back(r->slot);
  return slots;
}
std::vector<SlotId> WalkBack(const RunningByRank& running) {
  std::vector<SlotId> slots;
  RunningByRank::Cursor cursor = running.End();
  for (SlotId s = running.Previous(&cursor); s != kNoSlot; s = running.Previous(&cursor)) slots.push_back(s);
  return slots;
}
std::vector<SlotId> SlotsOf(const SteadyRanking& ranking) {
  std::vector<SlotId> slots;
  for (const RankedSlot& r : ranking.ranked()) slots.push_back(r.slot);
  return slots;
}
// The expected order: by rank if the order has ranks, then by arrival.
std::vector<SlotId> SortedRunning(const Order& order, const StepView& view) {
  std::vector<SlotId> slots(view.running.begin(), view.running.end());
  std::sort(slots.begin(), slots.end(), [&](SlotId a, SlotId b) {
    const int64_t rank_a = order.ranks() ? order.RankOf(view, a) : 0;
    const int64_t rank_b = order.ranks() ? order.RankOf(view, b) : 0;
    return rank_a != rank_b ? rank_a < rank_b : view.seq.arrival_order[a] < view.seq.arrival_order[b];
  });
  return slots;
}

SlotId Any(Rng* rng, std::span<const SlotId> slots) {
  return slots[static_cast<size_t>(rng->UniformInt(0, static_cast<int64_t>(slots.size()) - 1))];
}

}  // namespace

void Churn(core::SequenceTable* t, Rng* rng, TimeNs now_ns, int moves) {
  for (int i = 0; i < moves; ++i) {
    const double what = rng->Uniform();
    const auto waiting = t->waiting();
    const auto running = t->running();
    if (what < 0.45 && t->free_slots() > 0) {
      core::SequenceSpec spec;
      spec.prompt_tokens = static_cast<int32_t>(rng->UniformInt(1, 40));
      spec.max_output_tokens = 30;
      spec.arrival_ns = now_ns;
      spec.priority = static_cast<int32_t>(rng->UniformInt(-2, 2));
      if (rng->Uniform() < 0.7) {
        spec.planned = {.position = static_cast<int32_t>(rng->UniformInt(0, 500)),
                        .kv_tokens = static_cast<int32_t>(rng->UniformInt(0, 40))};
      }
      t->Add(spec, now_ns);
    } else if (what < 0.65 && !waiting.empty()) {
      const SlotId s = Any(rng, waiting);
      t->Admit(s, 0);
      if (const int32_t output = t->columns().known_committed[s] - t->columns().prompt_tokens[s];
          rng->Uniform() < 0.7 && output < 20) {
        t->PlanItem(s, t->columns().known_committed[s], true, 0, false);
        t->CommitItem(s, t->columns().known_committed[s], 1);
      }
    } else if (what < 0.8 && !running.empty()) {
      const SlotId s = Any(rng, running);
      if (t->holds_kv(s)) t->Preempt(s, now_ns);
      t->Compact();
    } else if (what < 0.9 && !waiting.empty()) {
      const SlotId s = Any(rng, waiting);
      t->Finish(s);
      t->Free(s);
    } else if (!running.empty()) {
      const SlotId s = running.back();
      t->Finish(s);
      t->Free(s);
      t->Compact();
    }
  }
}

SchedulerLimits Limits(const core::LengthPredictor* predictor, core::NoteLayout* notes) {
  SchedulerLimits limits;
  limits.notes = notes;
  limits.slot_capacity = 40;
  limits.max_model_len = 80;
  limits.blocks_total = 50;
  limits.block_size = 4;
  limits.predictor = predictor;
  *limits.policy.Find<int64_t>("ltr-starvation-steps") = 12;
  *limits.policy.Find<int64_t>("ltr-quantum-steps") = 6;
  *limits.policy.Find<int64_t>("pia-window") = 6;
  *limits.policy.Find<int64_t>("pia-batch") = 1;
  *limits.policy.Find<bool>("pia-variable-batches") = false;
  limits.policy.Find<DurationText>("mlfq-quantum")->ns = kSecond / 2;
  limits.policy.Find<DurationText>("mlfq-promotion")->ns = 4 * kSecond;
  *limits.policy.Find<int64_t>("mlfq-promotion-steps") = 9;
  *limits.policy.Find<double>("larry-lambda") = 0.5;
  return limits;
}

namespace {

// Where the item of a slot begins in a step: ascending, and now and then from the start again as after a preemption.
int32_t Position(int step, SlotId slot) {
  return (step + slot) % 50;
}

// An instance that is made in the middle of a run and follows the first one, with separate notes.
class Latecomer {
 public:
  // `before`: the notes before the first instance applied the view.
  Latecomer(std::unique_ptr<Order> order, const SchedulerLimits& limits, std::vector<std::byte> before)
      : order_(std::move(order)), running_(limits.slot_capacity), notes_(std::move(before)) {}

  void Follow(StepView view) {
    for (const SlotId s : view.waiting) Occupy(view, s);
    for (const SlotId s : view.running) Occupy(view, s);
    view.notes.bytes = notes_.data();
    begun_ ? order_->Apply(view) : order_->Rebuild(view);
    begun_ ? running_.Apply(view, *order_) : running_.Rebuild(view, *order_);
    begun_ = true;
    walk_ = Walk(order_.get(), view);
  }
  void Planned(StepView view, std::span<const StepItem> items) {
    view.notes.bytes = notes_.data();
    order_->Planned(view, items);
  }
  const std::vector<SlotId>& walk() const { return walk_; }
  const RunningByRank& running() const { return running_; }

 private:
  // Notes of a sequence that has arrived since are zero, as in the table.
  void Occupy(const StepView& view, SlotId s) {
    const auto [at, first] = occupant_.try_emplace(s, view.seq.arrival_order[s]);
    const bool came_since = first ? begun_ : at->second != view.seq.arrival_order[s];
    at->second = view.seq.arrival_order[s];
    const size_t stride = view.notes.stride;
    if (came_since)
      std::fill_n(notes_.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(s) * stride), stride, std::byte{0});
  }

  std::unique_ptr<Order> order_;
  RunningByRank running_;
  std::vector<std::byte> notes_;
  std::vector<SlotId> walk_;
  std::map<SlotId, int64_t> occupant_;  // by arrival
  bool begun_ = false;
};

// If the order's ranks decide, comparing the index's entries with a waiting sequence's rank must agree with Before.
void CheckThatRanksDecide(const Order& order, const StepView& view, const RunningByRank& running) {
  if (!order.rank_decides()) return;
  for (const SlotId w : view.waiting) {
    const RankedSlot waits{order.RankOf(view, w), view.seq.arrival_order[w], w};
    RunningByRank::Cursor cursor;
    for (const RankedSlot* r = running.Next(&cursor); r != nullptr; r = running.Next(&cursor))
      ASSERT_EQ(*r < waits, order.Before(view, r->slot, w)) << "slots " << r->slot << " and " << w;
  }
}

}  // namespace

void CheckAgainstSort(std::unique_ptr<Order> (*make)(const SchedulerLimits&), Reference* reference) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    Drifting predictor;
    core::NoteLayout layout;
    const SchedulerLimits limits = Limits(&predictor, &layout);
    auto order = make(limits);
    core::SequenceTable t(limits.slot_capacity, layout.stride());
    RunningByRank running(limits.slot_capacity);
    SteadyRanking ranking(limits.slot_capacity, limits.slot_capacity);
    std::optional<Latecomer> latecomer;
    const int moves = seed % 2 == 0 ? 6 : 1;  // also calm runs, in which sequences live for long
    reference->Forget();
    for (int step = 0; step < 200; ++step) {
      Churn(&t, &rng, step * kSecond / 3, moves);
      predictor.step = step;
      StepView view = ViewOf(&t, step, step * kSecond / 3);
      const core::SequenceNotes kept = t.notes();
      std::vector<std::byte> notes(kept.bytes, kept.bytes + kept.stride * static_cast<size_t>(limits.slot_capacity));
      step == 0 ? order->Rebuild(view) : order->Apply(view);
      step == 0 ? running.Rebuild(view, *order) : running.Apply(view, *order);
      const std::vector<SlotId> walk = Walk(order.get(), view);
      std::vector<SlotId> ranked = SortedRunning(*order, view);
      if (step == 60) latecomer.emplace(make(limits), limits, notes);
      if (latecomer) {
        latecomer->Follow(view);
        ASSERT_EQ(latecomer->walk(), walk) << "a latecomer's, seed " << seed << " step " << step;
        ASSERT_EQ(WalkRunning(latecomer->running()), ranked)
            << "a latecomer's running, seed " << seed << " step " << step;
      }
      ASSERT_EQ(WalkRunning(running), ranked) << "running, seed " << seed << " step " << step;
      ASSERT_NO_FATAL_FAILURE(CheckThatRanksDecide(*order, view, running)) << "seed " << seed << " step " << step;
      ranking.Sort(view, *order, view.running_by_arrival, view.seq.arrival_order);
      ASSERT_EQ(SlotsOf(ranking), ranked) << "sorted again, seed " << seed << " step " << step;

      for (const core::SequenceChange& change : view.changes) {
        if (change.kind == core::ChangeKind::kQueued) reference->Queued(view, change.slot);
        if (change.kind == core::ChangeKind::kAdmitted) reference->Admitted(view, change.slot);
      }
      reference->BeforeWalk(view);
      std::vector<SlotId> expected(view.waiting.begin(), view.waiting.end());
      std::sort(expected.begin(), expected.end(),
                [&](SlotId a, SlotId b) { return reference->KeyOf(view, a) < reference->KeyOf(view, b); });
      ASSERT_EQ(walk, expected) << "seed " << seed << " step " << step;

      view.notes.bytes = notes.data();  // as before the step, for a fresh instance
      auto fresh = make(limits);
      fresh->Rebuild(view);
      ASSERT_EQ(Walk(fresh.get(), view), expected) << "fresh, seed " << seed << " step " << step;
      RunningByRank fresh_running(limits.slot_capacity);
      fresh_running.Rebuild(view, *fresh);
      std::reverse(ranked.begin(), ranked.end());
      ASSERT_EQ(WalkBack(fresh_running), ranked) << "running, fresh, seed " << seed << " step " << step;
      view.notes = kept;
      std::vector<StepItem> items;
      for (const SlotId s : view.running) {
        // In turns, so that some are left out for long and then served again.
        const bool turn = (s / 4 + step / 20) % 2 == 0;
        if (rng.Uniform() < (turn ? 0.7 : 0.02))
          items.push_back({.slot = s, .first_position = Position(step, s), .count = 1});
      }
      order->Planned(view, items);
      if (latecomer) latecomer->Planned(view, items);
      for (const StepItem& item : items) reference->Served(view, item);
      t.ClearChanges();
    }
  }
}

void CheckBeforeAgainstWalk(const char* name, std::unique_ptr<Order> (*make)(const SchedulerLimits&)) {
  Rng rng(5);
  Drifting predictor;
  core::NoteLayout layout;
  const SchedulerLimits limits = Limits(&predictor, &layout);
  auto order = make(limits);
  core::SequenceTable t(limits.slot_capacity, layout.stride());
  for (int step = 0; step < 100; ++step) {
    Churn(&t, &rng, step * kSecond / 3);
    predictor.step = step;
    StepView view = ViewOf(&t, step, step * kSecond / 3);
    step == 0 ? order->Rebuild(view) : order->Apply(view);
    t.ClearChanges();
    const std::vector<SlotId> walk = Walk(order.get(), view);
    for (size_t i = 0; i < walk.size(); ++i) {
      for (size_t j = 0; j < walk.size(); ++j) {
        ASSERT_EQ(order->Before(view, walk[i], walk[j]), i < j)
            << name << ", step " << step << ": the walk has slot " << walk[i] << " at " << i << " and slot " << walk[j]
            << " at " << j;
      }
    }
  }
}

}  // namespace tactus::testing
