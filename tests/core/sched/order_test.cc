// The orders' queues, and the index of the running sequences by rank, against a plain sort, over random arrivals,
// admissions, preemptions and cancels.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "core/sched/choices.h"
#include "core/sched/order_bed.h"
#include "core/sched/predicted_length.h"
#include "core/sched/view_of.h"

namespace tactus::core::order_test {
namespace {

using testing::Arrival;
using testing::CheckAgainstSort;
using testing::CheckBeforeAgainstWalk;
using testing::Churn;
using testing::Drifting;
using testing::Key;
using testing::Limits;
using testing::Output;
using testing::Reference;
using testing::ViewOf;
using testing::Walk;

TEST(Order, BeforeAgreesWithTheWalk) {
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

TEST(Order, FcfsGoesByArrivalWithPreemptedSequencesFirst) {
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

// The prediction when a sequence was queued: the first attempt that exceeds what it has generated.
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

TEST(Order, SrptGoesByPredictedRemainingOutput) {
  struct : Predicting {
    Key KeyOf(const StepView& view, SlotId s) const override {
      return {predicted.at(s) - Output(view, s), Arrival(view, s)};
    }
  } reference;
  CheckAgainstSort(MakeSrptOrder, &reference);
}

// Windows of the six oldest, sorted by the prediction made at arrival; the next window starts when none of the last is
// left. Preempted sequences keep their place.
TEST(Order, GroupedGoesByWindows) {
  struct : Reference {
    struct State {
      int predicted = 0;
      int place = 0;  // 0: not in a window yet
    };
    std::map<int64_t, State> known;  // by arrival
    void Forget() override { known.clear(); }
    const State& Of(const StepView& view, SlotId s) const { return known.at(view.seq.arrival_order[s]); }
    void Queued(const StepView& view, SlotId s) override {
      if (known.count(view.seq.arrival_order[s]) > 0) return;
      Drifting predictor;
      predictor.step = view.step;
      known[view.seq.arrival_order[s]].predicted = core::PredictOutput(predictor, view, s, 0);
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

// A sequence is promoted after 12 steps without it, waiting or running, for 6 steps with it; for more steps if those
// have computed only positions computed before.
TEST(Order, RankPromotesSequencesUnservedForTooLong) {
  struct : Predicting {
    struct State {
      double predicted = 0;
      int64_t since = 0;
      int64_t promoted_since = 0;
      int64_t quantum = 0;
      int32_t reached = 0;         // positions computed at some time
      bool brought = false;        // one more since it was promoted
      bool again_is_free = false;  // a promotion has brought none
    };
    std::map<int64_t, State> state;  // by arrival: slots are reused
    int promotions_that_went_on = 0;
    void Forget() override { state.clear(); }
    void Queued(const StepView& view, SlotId s) override {
      Predicting::Queued(view, s);
      state.try_emplace(view.seq.arrival_order[s], predicted.at(s), view.step);
    }
    void Served(const StepView& view, const StepItem& item) override {
      State& st = state.at(view.seq.arrival_order[item.slot]);
      if (view.step - st.since >= 12) {
        if (st.quantum == 0) {
          st.promoted_since = st.since;
          st.brought = false;
        }
        st.quantum = 6;
      }
      const bool is_new = item.first_position + item.count > st.reached;
      st.brought = st.brought || is_new;
      const bool counts = is_new || !st.again_is_free;
      if (st.quantum == 1 && counts && !st.brought) {
        st.again_is_free = true;
        st.quantum = 6;
        ++promotions_that_went_on;
      } else if (st.quantum > 0 && counts) {
        --st.quantum;
      }
      st.reached = std::max(st.reached, item.first_position + item.count);
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
  EXPECT_GT(reference.promotions_that_went_on, 0);
}

// Queues as lists, front and back. Steps take a third of a second: quanta of 0.2, 0.4, 0.8 ... s are 1, 2, 3, 5 ...
// steps. Every 9 steps sequences without service for 4 s, 12 steps, are promoted.
TEST(Order, MlfqSinksToTheFrontAndPromotesPeriodically) {
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
    void Served(const StepView& view, const StepItem& item) override {
      State& st = state.at(view.seq.arrival_order[item.slot]);
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

TEST(Order, ShortestPromptCountsRecomputedTokens) {
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

// lambda = infinity: by arrival, whatever the waiting time and size.
TEST(Order, LarryWithInfiniteLambdaIsFirstComeFirstServed) {
  SchedulerLimits limits = Limits(nullptr, nullptr);
  *limits.policy.Find<double>("larry-lambda") = std::numeric_limits<double>::infinity();
  core::SequenceTable t(4);
  auto order = MakeLarryOrder(limits);
  for (const int32_t prompt : {40, 4, 20}) {
    core::SequenceSpec spec;
    spec.prompt_tokens = prompt;
    spec.max_output_tokens = 8;
    t.Add(spec, 0);
  }
  const StepView view = ViewOf(&t);
  order->Rebuild(view);
  EXPECT_EQ(Walk(order.get(), view), (std::vector<SlotId>{0, 1, 2}));
}

// The bound in its presets.def row: a request that comes more than (requests waiting) x (the other's share of the KV
// memory) / lambda seconds after another never goes before it.
TEST(Order, LarryBoundsHowLongARequestIsPassedOver) {
  Rng rng(11);
  SchedulerLimits limits = Limits(nullptr, nullptr);
  int passed_over = 0;
  for (const double lambda : {0.5, 2.0, 20.0}) {
    *limits.policy.Find<double>("larry-lambda") = lambda;
    core::SequenceTable t(limits.slot_capacity);
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
}  // namespace tactus::core::order_test
