// The orders' index, and that over the running sequences in their ranks, against a plain sort, over random arrivals,
// admissions, preemptions and cancels.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/rng.h"
#include "sched/choices.h"
#include "sched/predicted_length.h"
#include "sched/running_by_rank.h"
#include "sched/steady_ranking.h"
#include "sched/view_of.h"
#include "seq/sequence_table.h"

namespace tactus::sched {
namespace {

using testing::ViewOf;

std::vector<SlotId> Walk(Order* order, const StepView& view) {
  std::vector<SlotId> slots;
  order->Start(view);
  for (SlotId s = order->Next(); s != kNoSlot; s = order->Next()) slots.push_back(s);
  return slots;
}

std::vector<SlotId> Walk(const RunningByRank& running) {
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
// What they must be: by rank where the order has any, then by arrival.
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

// Arrivals, admissions with some output, preemptions, cancels and ends, a few at a time.
void Churn(SequenceTable* t, Rng* rng, TimeNs now_ns, int moves = 6) {
  for (int i = 0; i < moves; ++i) {
    const double what = rng->Uniform();
    const auto waiting = t->waiting();
    const auto running = t->running();
    if (what < 0.45 && t->free_slots() > 0) {
      SequenceSpec spec;
      spec.prompt_tokens = static_cast<int32_t>(rng->UniformInt(1, 40));
      spec.max_output_tokens = 30;
      spec.arrival_ns = now_ns;
      spec.priority = static_cast<int32_t>(rng->UniformInt(-2, 2));
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

// A prediction that another step would have made differently: whoever files by it must keep what it was.
class Drifting final : public LengthPredictor {
 public:
  int64_t step = 0;
  const char* name() const override { return "drifting"; }
  bool learns() const override { return true; }
  void Bind(SlotId, const PredictionFeatures&) override {}
  void Ended(SlotId, int32_t, bool) override {}
  int32_t PredictOutputTokens(SlotId slot, int32_t attempt) const override {
    return static_cast<int32_t>(std::min<int64_t>(30, 1 + (slot * 7 + step * 3) % 25 + 5 * attempt));
  }
};

using Key = std::vector<double>;
// What an order's walk must be sorted by; told of every change first.
struct Reference {
  virtual ~Reference() = default;
  virtual void Forget() {}
  virtual void Queued(const StepView&, SlotId) {}
  virtual void Admitted(const StepView&, SlotId) {}
  virtual void Served(const StepView&, SlotId) {}
  virtual void BeforeWalk(const StepView&) {}
  virtual Key KeyOf(const StepView& view, SlotId s) const = 0;
};

SchedulerLimits Limits(const LengthPredictor* predictor, NoteLayout* notes) {
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

// An instance that is made in the middle of a run and goes on beside the first, with notes of its own.
class Latecomer {
 public:
  // `before`: the notes as they were before the first instance saw the view.
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
  // Notes of a sequence that has come since are zero, as the table has them.
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

// Where the order says that ranks decide, what the index holds of the running ones says who goes before a waiting one.
void CheckThatRanksDecide(const Order& order, const StepView& view, const RunningByRank& running) {
  if (!order.rank_decides()) return;
  for (const SlotId w : view.waiting) {
    const RankedSlot waits{order.RankOf(view, w), view.seq.arrival_order[w], w};
    RunningByRank::Cursor cursor;
    for (const RankedSlot* r = running.Next(&cursor); r != nullptr; r = running.Next(&cursor))
      ASSERT_EQ(*r < waits, order.Before(view, r->slot, w)) << "slots " << r->slot << " and " << w;
  }
}

void CheckAgainstSort(std::unique_ptr<Order> (*make)(const SchedulerLimits&), Reference* reference) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Rng rng(seed);
    Drifting predictor;
    NoteLayout layout;
    const SchedulerLimits limits = Limits(&predictor, &layout);
    auto order = make(limits);
    SequenceTable t(limits.slot_capacity, layout.stride());
    RunningByRank running(limits.slot_capacity);
    SteadyRanking ranking(limits.slot_capacity, limits.slot_capacity);
    std::optional<Latecomer> latecomer;
    const int moves = seed % 2 == 0 ? 6 : 1;  // calm runs, too, in which sequences live on for long
    reference->Forget();
    for (int step = 0; step < 200; ++step) {
      Churn(&t, &rng, step * kSecond / 3, moves);
      predictor.step = step;
      StepView view = ViewOf(&t, step, step * kSecond / 3);
      const SequenceNotes kept = t.notes();
      std::vector<std::byte> notes(kept.bytes, kept.bytes + kept.stride * static_cast<size_t>(limits.slot_capacity));
      step == 0 ? order->Rebuild(view) : order->Apply(view);
      step == 0 ? running.Rebuild(view, *order) : running.Apply(view, *order);
      const std::vector<SlotId> walk = Walk(order.get(), view);
      std::vector<SlotId> ranked = SortedRunning(*order, view);
      if (step == 60) latecomer.emplace(make(limits), limits, notes);
      if (latecomer) {
        latecomer->Follow(view);
        ASSERT_EQ(latecomer->walk(), walk) << "a latecomer's, seed " << seed << " step " << step;
        ASSERT_EQ(Walk(latecomer->running()), ranked) << "a latecomer's running, seed " << seed << " step " << step;
      }
      ASSERT_EQ(Walk(running), ranked) << "running, seed " << seed << " step " << step;
      ASSERT_NO_FATAL_FAILURE(CheckThatRanksDecide(*order, view, running)) << "seed " << seed << " step " << step;
      ranking.Sort(view, *order, view.running_by_arrival, view.seq.arrival_order);
      ASSERT_EQ(SlotsOf(ranking), ranked) << "sorted anew, seed " << seed << " step " << step;

      for (const SequenceChange& change : view.changes) {
        if (change.kind == ChangeKind::kQueued) reference->Queued(view, change.slot);
        if (change.kind == ChangeKind::kAdmitted) reference->Admitted(view, change.slot);
      }
      reference->BeforeWalk(view);
      std::vector<SlotId> expected(view.waiting.begin(), view.waiting.end());
      std::sort(expected.begin(), expected.end(),
                [&](SlotId a, SlotId b) { return reference->KeyOf(view, a) < reference->KeyOf(view, b); });
      ASSERT_EQ(walk, expected) << "seed " << seed << " step " << step;

      view.notes.bytes = notes.data();  // as a fresh instance would have found them
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
        // By turns, so that some are left out for long and are served again then.
        const bool turn = (s / 4 + step / 20) % 2 == 0;
        if (rng.Uniform() < (turn ? 0.7 : 0.02)) items.push_back({.slot = s, .count = 1});
      }
      order->Planned(view, items);
      if (latecomer) latecomer->Planned(view, items);
      for (const StepItem& item : items) reference->Served(view, item.slot);
      t.ClearChanges();
    }
  }
}

// Compositions that mix queued and partly done prompts ask Before instead of walking: both must say the same of any two
// that wait.
void CheckBeforeAgainstWalk(const char* name, std::unique_ptr<Order> (*make)(const SchedulerLimits&)) {
  Rng rng(5);
  Drifting predictor;
  NoteLayout layout;
  const SchedulerLimits limits = Limits(&predictor, &layout);
  auto order = make(limits);
  SequenceTable t(limits.slot_capacity, layout.stride());
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

TEST(Order, BeforeSaysWhatTheWalkDoes) {
  CheckBeforeAgainstWalk("fcfs", MakeFcfsOrder);
  CheckBeforeAgainstWalk("queue-time", MakeQueueTimeOrder);
  CheckBeforeAgainstWalk("priority", MakePriorityOrder);
  CheckBeforeAgainstWalk("shortest-prompt", MakeShortestPromptOrder);
  CheckBeforeAgainstWalk("srpt", MakeSrptOrder);
  CheckBeforeAgainstWalk("rank", MakeRankOrder);
  CheckBeforeAgainstWalk("larry", MakeLarryOrder);
  CheckBeforeAgainstWalk("mlfq", MakeMlfqOrder);
  CheckBeforeAgainstWalk("slack", MakeSlackOrder);
  CheckBeforeAgainstWalk("grouped", MakeGroupedOrder);
  CheckBeforeAgainstWalk("decreasing", MakeDecreasingOrder);
}

double Arrival(const StepView& view, SlotId s) {
  return static_cast<double>(view.seq.arrival_order[s]);
}
double Output(const StepView& view, SlotId s) {
  return view.seq.known_committed[s] - view.seq.prompt_tokens[s];
}

TEST(Order, FcfsKeepsArrivalAndPutsThePreemptedFirst) {
  struct : Reference {
    Key KeyOf(const StepView& view, SlotId s) const override {
      return {view.seq.preemptions[s] > 0 ? 0.0 : 1.0, Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakeFcfsOrder, &reference);
}

TEST(Order, QueueTimeGoesByTheLastEntryIntoTheQueue) {
  struct : Reference {
    Key KeyOf(const StepView& view, SlotId s) const override {
      return {static_cast<double>(view.seq.queued_ns[s]), Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakeQueueTimeOrder, &reference);
}

TEST(Order, PriorityComesBeforeArrival) {
  struct : Reference {
    Key KeyOf(const StepView& view, SlotId s) const override {
      return {static_cast<double>(view.seq.priority[s]), view.seq.preemptions[s] > 0 ? 0.0 : 1.0, Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakePriorityOrder, &reference);
}

// What was predicted when a sequence was queued: the smallest attempt that is beyond what it has generated.
struct Predicting : Reference {
  std::map<SlotId, double> predicted;
  void Queued(const StepView& view, SlotId s) override {
    Drifting predictor;
    predictor.step = view.step;
    for (int attempt = 0;; ++attempt) {
      predicted[s] = predictor.PredictOutputTokens(s, attempt);
      if (predicted[s] > Output(view, s) || predicted[s] >= 30) return;
    }
  }
};

TEST(Order, SrptGoesByWhatIsPredictedToBeLeft) {
  struct : Predicting {
    Key KeyOf(const StepView& view, SlotId s) const override {
      return {predicted.at(s) - Output(view, s), Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakeSrptOrder, &reference);
}

// Windows of the six oldest, sorted by the prediction made when they came; the next one is taken when nobody of the
// last is left. Who is preempted keeps its place.
TEST(Order, GroupedGoesByWindows) {
  struct : Reference {
    struct State {
      int predicted = 0;
      int place = 0;  // 0: in no window yet
    };
    std::map<int64_t, State> known;  // by arrival
    void Forget() override { known.clear(); }
    const State& Of(const StepView& view, SlotId s) const { return known.at(view.seq.arrival_order[s]); }
    void Queued(const StepView& view, SlotId s) override {
      if (known.count(view.seq.arrival_order[s]) > 0) return;
      Drifting predictor;
      predictor.step = view.step;
      known[view.seq.arrival_order[s]].predicted = sched::PredictOutput(predictor, view, s, 0);
    }
    void BeforeWalk(const StepView& view) override {
      std::vector<SlotId> queue(view.waiting.begin(), view.waiting.end());
      std::sort(queue.begin(), queue.end(), [&](SlotId a, SlotId b) { return Arrival(view, a) < Arrival(view, b); });
      for (const SlotId s : queue) {
        if (Of(view, s).place > 0) return;
      }
      if (queue.size() > 6) queue.resize(6);
      std::stable_sort(queue.begin(), queue.end(),
                       [&](SlotId a, SlotId b) { return Of(view, a).predicted < Of(view, b).predicted; });
      int place = 0;
      for (const SlotId s : queue) known[view.seq.arrival_order[s]].place = ++place;
    }
    Key KeyOf(const StepView& view, SlotId s) const override {
      const int place = Of(view, s).place;
      return {place > 0 ? place : 1e9, Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakeGroupedOrder, &reference);
}

// Promoted after 12 steps in none of which it was, whether it waited or ran, for 6 of its own.
TEST(Order, RankPromotesWhoWasNotServedForTooLong) {
  struct : Predicting {
    struct State {
      double predicted = 0;
      int64_t since = 0;
      int64_t promoted_since = 0;
      int64_t quantum = 0;
    };
    std::map<int64_t, State> state;  // by arrival: slots are reused
    void Forget() override { state.clear(); }
    void Queued(const StepView& view, SlotId s) override {
      Predicting::Queued(view, s);
      state.try_emplace(view.seq.arrival_order[s], predicted.at(s), view.step);
    }
    void Served(const StepView& view, SlotId s) override {
      State& st = state.at(view.seq.arrival_order[s]);
      if (view.step - st.since >= 12) {
        if (st.quantum == 0) st.promoted_since = st.since;
        st.quantum = 6;
      }
      st.quantum = std::max<int64_t>(0, st.quantum - 1);
      st.since = view.step + 1;
    }
    Key KeyOf(const StepView& view, SlotId s) const override {
      const State& st = state.at(view.seq.arrival_order[s]);
      if (st.quantum > 0) return {0, static_cast<double>(st.promoted_since), Arrival(view, s)};
      if (view.step - st.since >= 12) return {0, static_cast<double>(st.since), Arrival(view, s)};
      return {1, st.predicted, Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakeRankOrder, &reference);
}

// Queues as lists, front and back. Steps take a third of a second: quanta of 0.2, 0.4, 0.8 ... s are 1, 2, 3, 5 ...
// steps. Every 9 steps those not served for 4 s, 12 steps, are promoted.
TEST(Order, MlfqSinksToTheFrontAndPromotesAtItsLooks) {
  struct : Reference {
    struct State {
      int level = 0;
      double place = 0;
      TimeNs since_ns = 0, service_ns = 0;
      bool computing = false, promoted = false;
    };
    std::map<int64_t, State> state;  // by arrival
    void Forget() override { state.clear(); }
    void Queued(const StepView& view, SlotId s) override {
      state.try_emplace(view.seq.arrival_order[s],
                        State{.place = static_cast<double>(view.step), .since_ns = view.now_ns});
    }
    void BeforeWalk(const StepView& view) override {
      for (const SlotId s : view.running) {
        State& st = state.at(view.seq.arrival_order[s]);
        if (!st.computing) continue;
        st.computing = false;
        st.service_ns += view.now_ns - st.since_ns;
        if (st.service_ns <= (kSecond / 2) << st.level) continue;
        ++st.level;
        st.place = -static_cast<double>(view.step);
        st.service_ns = 0;
      }
      if (view.step % 9 != 0) return;
      for (auto& [arrival, st] : state) st.promoted |= view.now_ns - st.since_ns >= 4 * kSecond;
    }
    void Served(const StepView& view, SlotId s) override {
      State& st = state.at(view.seq.arrival_order[s]);
      if (st.promoted) st = {.place = -static_cast<double>(view.step)};
      st.computing = true;
      st.since_ns = view.now_ns;
    }
    Key KeyOf(const StepView& view, SlotId s) const override {
      const State& st = state.at(view.seq.arrival_order[s]);
      if (st.promoted) return {-1, static_cast<double>(st.since_ns), Arrival(view, s)};
      return {static_cast<double>(st.level), st.place, Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakeMlfqOrder, &reference);
}

TEST(Order, ShortestPromptCountsWhatMustBeComputedAgain) {
  struct : Reference {
    Key KeyOf(const StepView& view, SlotId s) const override {
      return {static_cast<double>(view.seq.known_committed[s]), Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakeShortestPromptOrder, &reference);
}

TEST(Order, LarryGoesByItsScore) {
  struct : Reference {
    Key KeyOf(const StepView& view, SlotId s) const override {
      const double wait_s = static_cast<double>(view.now_ns - view.seq.arrival_ns[s]) * 1e-9;
      const double mem = (view.seq.known_committed[s] + 3) / 4 / 50.0;
      return {-(0.5 * wait_s - static_cast<double>(view.waiting.size()) * mem), Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakeLarryOrder, &reference);
}

// lambda = infinity: whatever waits for how long and however large it is.
TEST(Order, LarryWithoutEndIsFirstComeFirstServed) {
  SchedulerLimits limits = Limits(nullptr, nullptr);
  *limits.policy.Find<double>("larry-lambda") = std::numeric_limits<double>::infinity();
  SequenceTable t(4);
  auto order = MakeLarryOrder(limits);
  for (const int32_t prompt : {40, 4, 20}) {
    SequenceSpec spec;
    spec.prompt_tokens = prompt;
    spec.max_output_tokens = 8;
    t.Add(spec, 0);
  }
  const StepView view = ViewOf(&t);
  order->Rebuild(view);
  EXPECT_EQ(Walk(order.get(), view), (std::vector<SlotId>{0, 1, 2}));
}

// The bound of its row: whoever comes more than (requests waiting) x (its share of the KV memory) / lambda seconds
// after another never goes before it.
TEST(Order, LarryPassesNobodyOverForLong) {
  Rng rng(11);
  SchedulerLimits limits = Limits(nullptr, nullptr);
  int passed_over = 0;
  for (const double lambda : {0.5, 2.0, 20.0}) {
    *limits.policy.Find<double>("larry-lambda") = lambda;
    SequenceTable t(limits.slot_capacity);
    auto order = MakeLarryOrder(limits);
    for (int step = 0; step < 300; ++step) {
      Churn(&t, &rng, step * kSecond);
      const StepView view = ViewOf(&t, 0, step * kSecond);
      order->Apply(view);
      t.ClearChanges();
      const std::vector<SlotId> walk = Walk(order.get(), view);
      for (size_t i = 0; i < walk.size(); ++i) {
        for (size_t j = i + 1; j < walk.size(); ++j) {
          const double later_s =
              static_cast<double>(view.seq.arrival_ns[walk[i]] - view.seq.arrival_ns[walk[j]]) * 1e-9;
          const double share = (view.seq.known_committed[walk[j]] + 3) / 4 / 50.0;
          const double bound_s = static_cast<double>(walk.size()) * share / lambda;
          passed_over += later_s > 0;
          ASSERT_LE(later_s, bound_s) << walk[i] << " goes before " << walk[j];
        }
      }
    }
  }
  EXPECT_GT(passed_over, 100);
}

}  // namespace
}  // namespace tactus::sched
