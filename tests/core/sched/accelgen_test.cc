// AccelGen, against examples computed by hand and slow obvious references.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "core/loop/harness.h"
#include "core/sched/accelgen/distance.h"
#include "core/sched/accelgen/slack.h"
#include "core/sched/choices.h"
#include "core/sched/slack_bed.h"

namespace tactus::core {
namespace {

// --- slack ---

TEST(Slack, PromptsAndDecodesFollowTheFormula) {
  Bed bed;
  bed.ThreeSteps();
  const SlackModel slack(Limits());
  const SlotId prompt = bed.Wait(200, {500 * kMs, 50 * kMs, 0});
  const SlotId half = bed.Wait(200, {500 * kMs, 50 * kMs, 0});
  const SlotId decode = bed.Wait(10, {500 * kMs, 50 * kMs, 0});
  const SlotId plain = bed.Wait(75, {});
  const SlotId plain_decode = bed.Wait(5, {});
  bed.Compute(half, 100);
  bed.Compute(decode, 10);
  bed.Compute(plain_decode, 5);
  const StepView view = bed.View(100 * kMs);
  EXPECT_EQ(slack.SlackNs(view, prompt), (500 - 100 - 3 * 20) * kMs);
  EXPECT_EQ(slack.SlackNs(view, half), (500 - 100 - 2 * 20) * kMs);
  EXPECT_EQ(slack.SlackNs(view, decode), (50 - 20) * kMs);
  EXPECT_EQ(slack.SlackNs(view, plain), (2000 - 100 - 20) * kMs);
  EXPECT_EQ(slack.SlackNs(view, plain_decode), 187'500'000 - 20 * kMs);
  // Passed over at 100 ms: 25 ms later it has waited for that time; once it runs it has not.
  slack.PassedOver(view, decode);
  const StepView later = bed.View(125 * kMs);
  slack.PassedOver(later, decode);
  EXPECT_EQ(slack.SlackNs(later, decode), (50 - 25 - 20) * kMs);
  slack.Took(later, decode);
  EXPECT_EQ(slack.SlackNs(later, decode), (50 - 20) * kMs);
}

// It has had tokens, so it owes the next one: the TBT objective counts, from the loss of its KV.
TEST(Slack, APreemptedSequenceOwesItsTbtObjective) {
  Bed bed;
  bed.ThreeSteps();
  const SlackModel slack(Limits());
  const SlotId s = bed.Wait(209, {500 * kMs, 50 * kMs, 0});
  bed.Compute(s, 209);
  bed.table.Preempt(s, 80 * kMs);
  EXPECT_EQ(slack.SlackNs(bed.View(100 * kMs), s), (50 - 20 - 3 * 20) * kMs);
}

TEST(Slack, AJobCarriesUnusedTimeToLaterSteps) {
  Bed bed;
  bed.ThreeSteps();
  const SlackModel slack(Limits());
  const SlotId s = bed.Wait(150, {0, 0, 10'000 * kMs}, 0, 8);
  // T_e = 2 * 20 + 8 * (20 + 30 / 60) = 204 ms; (10,000 - 204) / (2 + 8) = 979.6 ms to wait per step.
  const DurationNs share = 979'600'000;
  EXPECT_EQ(slack.SlackNs(bed.View(0), s), share);
  EXPECT_EQ(slack.SlackNs(bed.View(100 * kMs), s), share - 100 * kMs);
  slack.Took(bed.View(100 * kMs), s);  // 879.6 ms left over
  bed.Compute(s, 75);
  EXPECT_EQ(slack.SlackNs(bed.View(120 * kMs), s), 2 * share - 100 * kMs);
  // Left out from 120 ms to 2,320 ms: more than it had. The next step has that much less.
  slack.PassedOver(bed.View(120 * kMs), s);
  const StepView late = bed.View(2320 * kMs);
  EXPECT_EQ(slack.SlackNs(late, s), 2 * share - 2300 * kMs);
  slack.Took(late, s);
  bed.Compute(s, 75);
  EXPECT_EQ(slack.SlackNs(late, s), 3 * share - 2300 * kMs);
}

// A request with only a JCT objective has no first-token deadline from the 2 s default: only its share counts.
TEST(Slack, AJctAloneImpliesNoDefaultTtft) {
  Bed bed;
  bed.ThreeSteps();
  const SlackModel slack(Limits());
  const SlotId s = bed.Wait(150, {0, 0, 100'000 * kMs}, 0, 8);
  const DurationNs share = 9'979'600'000;  // (100,000 - 204) / 10, as above
  EXPECT_EQ(slack.SlackNs(bed.View(0), s), share);
  EXPECT_EQ(slack.WaitingDeadlines(bed.View(0), s).prompt_by_ns, kNever);
  EXPECT_EQ(slack.WaitingDeadlines(bed.View(0), s).job_by_ns, share);
}

TEST(Slack, TheLeastOfSeveralObjectivesCounts) {
  Bed bed;
  bed.ThreeSteps();
  const SlackModel slack(Limits());
  const SlotId loose_job = bed.Wait(150, {400 * kMs, 0, 10'000 * kMs});
  const SlotId tight_job = bed.Wait(150, {4000 * kMs, 0, 304 * kMs});
  const StepView view = bed.View(5 * kMs);
  EXPECT_EQ(slack.SlackNs(view, loose_job), (400 - 5 - 40) * kMs);
  EXPECT_EQ(slack.SlackNs(view, tight_job), (304 - 204) * kMs / 10 - 5 * kMs);
}

// Fewer than 128 steps and a model: one step of the pivot size stands in.
TEST(Slack, TheWindowIsSeededByTheModel) {
  FlatThenLinear model;
  model.flat = 256;
  SchedulerLimits limits = Limits();
  limits.step_time = &model;
  Bed bed;
  const SlackModel slack(limits);
  EXPECT_EQ(slack.pivot().tokens, 256);
  EXPECT_EQ(slack.pivot().step_ns, 256'000);
  EXPECT_EQ(slack.Window(bed.View(0)).longest_step_ns, 256'000);
  EXPECT_EQ(slack.Window(bed.View(0)).mean_chunk_tokens, 256);
  bed.Step(100'000, 44, 2, 0);
  EXPECT_EQ(slack.Window(bed.View(0)).longest_step_ns, 256'000);
  EXPECT_EQ(slack.Window(bed.View(0)).mean_chunk_tokens, 100);
  for (int i = 0; i < 127; ++i) bed.Step(90'000, 44, 2, 0);
  EXPECT_EQ(slack.Window(bed.View(0)).longest_step_ns, 100'000);
  EXPECT_EQ(slack.Window(bed.View(0)).mean_chunk_tokens, 22);
}

// A ring: the newest result is the one before `recent_begin`; failed steps do not count.
TEST(Slack, TheWindowIsARing) {
  Bed bed;
  const SlackModel slack(Limits());
  for (int i = 0; i < 4; ++i) bed.Step((10 + i) * kMs, 0, 0, 1);
  EXPECT_EQ(slack.Window(bed.View(0)).longest_step_ns, 13 * kMs);
  bed.recent[0].step = 4;
  bed.recent[0].end_ns = 50 * kMs;
  StepView view = bed.View(0);
  view.recent_begin = 1;
  EXPECT_EQ(slack.Window(view).longest_step_ns, 50 * kMs);
  bed.recent[1].step = 5;
  bed.recent[1].end_ns = 90 * kMs;
  bed.recent[1].ok = false;
  view.recent_begin = 2;
  EXPECT_EQ(slack.Window(view).longest_step_ns, 50 * kMs);
}

// --- missed objectives ---

// At the pivot's 1 us per token 1,000 tokens take 1 ms of the 2 ms; once 600 are done, 0.4 ms.
TEST(Slack, APromptHasMissedOnceNoStepCanKeepIt) {
  FlatThenLinear model;
  model.flat = 256;
  SchedulerLimits limits = Limits();
  limits.step_time = &model;
  Bed bed;
  const SlackModel slack(limits);
  const SlotId waits = bed.Wait(1000, {2 * kMs, 0, 0});
  const SlotId half = bed.Wait(1000, {2 * kMs, 0, 0});
  const SlotId job = bed.Wait(1000, {0, 0, 3 * kMs});
  bed.Compute(half, 600);
  EXPECT_FALSE(slack.Missed(bed.View(kMs), waits)) << "it can just be kept";
  EXPECT_TRUE(slack.Missed(bed.View(kMs + 1), waits));
  EXPECT_FALSE(slack.Missed(bed.View(kMs + 600'000), half));
  EXPECT_TRUE(slack.Missed(bed.View(kMs + 600'001), half));
  EXPECT_FALSE(slack.Missed(bed.View(2 * kMs), job));
  EXPECT_TRUE(slack.Missed(bed.View(2 * kMs + 1), job)) << "a job's objective includes its prompt";
  bed.Compute(half, 400);
  EXPECT_FALSE(slack.Missed(bed.View(kSecond), half)) << "a decode owes its next token";
  bed.table.Preempt(half, 0);
  EXPECT_FALSE(slack.Missed(bed.View(kSecond), half)) << "so does one that was preempted";
}

// Without a model a prompt's time is unknown: it has missed once its objective has passed.
TEST(Slack, WithoutAModelAPromptHasMissedWhenItsTimeIsOver) {
  Bed bed;
  bed.ThreeSteps();
  const SlackModel slack(Limits());
  const SlotId s = bed.Wait(1000, {500 * kMs, 0, 0});
  EXPECT_FALSE(slack.Missed(bed.View(500 * kMs), s));
  EXPECT_TRUE(slack.Missed(bed.View(500 * kMs + 1), s));
}

// Behind all others (kNever), until missed-turn steps have passed it over: then before all others, until it has its
// share.
TEST(Slack, AMissedPromptGetsATurn) {
  SchedulerLimits limits = Limits();
  *limits.policy.Find<int64_t>("accelgen-missed-turn") = 3;
  Bed bed;
  bed.ThreeSteps();
  const SlackModel slack(limits);
  const SlotId s = bed.Wait(75, {100 * kMs, 0, 0});
  EXPECT_EQ(slack.StandingNs(bed.View(50 * kMs), s), (100 - 50 - 20) * kMs);
  for (; bed.step < 3; ++bed.step) {
    EXPECT_EQ(slack.StandingNs(bed.View(kSecond), s), kNever) << bed.step;
    slack.AwaitTurn(bed.View(kSecond), s);
  }
  EXPECT_EQ(slack.StandingNs(bed.View(kSecond), s), SlackModel::kTurn);
  slack.Took(bed.View(kSecond), s);
  EXPECT_EQ(slack.StandingNs(bed.View(kSecond), s), kNever) << "it has had its share";
}

// --- order ---

// Against a sort by exact slack, missed ones behind all others in the order in which they missed, while the window
// (T_max, L_c) moves and sequences come and go; with a step-time model and without.
TEST(SlackOrder, MatchesASortBySlack) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    Bed bed(120);
    SchedulerLimits limits = Limits();
    limits.slot_capacity = 120;
    FlatThenLinear model;
    model.flat = 256;
    model.token_ns = 20'000;
    if (seed % 2 == 0) limits.step_time = &model;
    auto order = MakeSlackOrder(limits);
    const SlackModel slack(limits);
    order->Rebuild(bed.View(0));
    for (TimeNs now = kMs; now < 60 * kMs; now += kMs) {
      for (int i = 0; i < 8; ++i) {
        const auto waiting = bed.table.waiting();
        const auto running = bed.table.running();
        const double what = rng.Uniform();
        if (what < 0.55 && bed.table.free_slots() > 0) {
          Slo slo;
          if (rng.Uniform() < 0.7) slo.ttft_ns = rng.UniformInt(1, 400) * kMs;
          if (rng.Uniform() < 0.7) slo.tbt_ns = rng.UniformInt(1, 100) * kMs;
          if (rng.Uniform() < 0.3) slo.jct_ns = rng.UniformInt(1, 4000) * kMs;
          const auto prompt = static_cast<int32_t>(std::exp(rng.Uniform() * std::log(8000.0)));
          bed.Wait(std::max(1, prompt), slo, now);
        } else if (what < 0.8 && !waiting.empty()) {
          const SlotId s = waiting[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(waiting.size()) - 1))];
          slack.Took(bed.View(now), s);
          bed.Compute(s, bed.table.columns().known_committed[s]);
        } else if (what < 0.9 && !running.empty()) {
          const SlotId s = running[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(running.size()) - 1))];
          if (bed.table.holds_kv(s)) bed.table.Preempt(s, now);
          bed.table.Compact();
        } else if (!waiting.empty()) {
          const SlotId s = waiting.front();
          bed.table.Finish(s);
          bed.table.Free(s);
        }
      }
      const auto chunks = static_cast<int32_t>(rng.UniformInt(0, 4));
      bed.Step(rng.UniformInt(1, 60) * kMs, chunks * static_cast<int32_t>(rng.UniformInt(1, 900)), chunks, 5);
      StepView view = bed.View(now);
      order->Apply(view);
      bed.table.ClearChanges();
      view = bed.View(now);
      std::vector<SlotId> expected(view.waiting.begin(), view.waiting.end());
      std::sort(expected.begin(), expected.end(), [&](SlotId a, SlotId b) {
        const auto key = [&](SlotId s) {
          if (view.seq.preemptions[s] > 0) return std::tuple(0, slack.SlackNs(view, s), view.seq.arrival_order[s]);
          if (!slack.Missed(view, s)) return std::tuple(1, slack.SlackNs(view, s), view.seq.arrival_order[s]);
          const TimeNs missed_at = std::max(slack.KeepByNs(view, s), view.seq.queued_ns[s]);
          return std::tuple(2, missed_at, view.seq.arrival_order[s]);
        };
        return key(a) < key(b);
      });
      for (const bool fresh : {false, true}) {
        auto other = MakeSlackOrder(limits);
        other->Rebuild(view);
        Order* o = fresh ? other.get() : order.get();
        std::vector<SlotId> got;
        o->Start(view);
        for (SlotId s = o->Next(); s != kNoSlot; s = o->Next()) got.push_back(s);
        ASSERT_EQ(got, expected) << "seed " << seed << " fresh " << fresh;
      }
    }
  }
}

// The first missed sequence has its turn after missed-turn steps: only one, and only until it has started.
TEST(SlackOrder, TheFirstMissedPromptGetsItsTurn) {
  SchedulerLimits limits = Limits();
  *limits.policy.Find<int64_t>("accelgen-missed-turn") = 4;
  Bed bed;
  auto order = MakeSlackOrder(limits);
  order->Rebuild(bed.View(0));
  const SlotId kept = bed.Wait(20, {kSecond, 0, 0});
  const SlotId later = bed.Wait(20, {20 * kMs, 0, 0});
  const SlotId first = bed.Wait(20, {10 * kMs, 0, 0});
  const auto walk = [&] {
    const StepView view = bed.View(100 * kMs);
    order->Apply(view);
    bed.table.ClearChanges();
    std::vector<SlotId> got;
    order->Start(view);
    for (SlotId s = order->Next(); s != kNoSlot; s = order->Next()) got.push_back(s);
    auto fresh = MakeSlackOrder(limits);
    fresh->Rebuild(view);
    std::vector<SlotId> again;
    fresh->Start(view);
    for (SlotId s = fresh->Next(); s != kNoSlot; s = fresh->Next()) again.push_back(s);
    EXPECT_EQ(got, again) << "a fresh instance, step " << bed.step;
    for (size_t i = 1; i < got.size(); ++i) EXPECT_TRUE(order->Before(view, got[i - 1], got[i])) << bed.step;
    return got;
  };
  for (; bed.step < 4; ++bed.step) EXPECT_EQ(walk(), (std::vector{kept, first, later})) << bed.step;
  EXPECT_EQ(walk(), (std::vector{first, kept, later}));
  ++bed.step;
  EXPECT_EQ(walk(), (std::vector{first, kept, later})) << "until it has started";
  bed.Compute(first, 20);
  for (++bed.step; bed.step < 10; ++bed.step) EXPECT_EQ(walk(), (std::vector{kept, later})) << bed.step;
  EXPECT_EQ(walk(), (std::vector{later, kept}));
}

// --- distance ---

// Algorithm 2 as written: while a candidate fits, take the one with the least distance.
TEST(Distance, MatchesAlgorithm2) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    struct Candidate {
      int64_t compute, memory;
      bool taken = false;
    };
    std::vector<Candidate> all(static_cast<size_t>(rng.UniformInt(0, 60)));
    for (Candidate& c : all) {
      c.compute = rng.UniformInt(1, 400);
      c.memory = rng.Uniform() < 0.8 ? (c.compute + 15) / 16 * 16 : 16 * rng.UniformInt(0, 30);
    }
    const bool normalised = seed % 2 == 1;
    const Resources unit = normalised ? Resources{1024, 16000} : Resources{1, 1};
    Resources left{rng.UniformInt(1, 1024), 16 * rng.UniformInt(0, 100)};
    DistanceChoice choice(64);
    choice.Reset(unit);
    for (size_t i = 0; i < all.size(); ++i) choice.Add(static_cast<int32_t>(i), {all[i].compute, all[i].memory});
    for (;;) {
      int32_t best = -1;
      double least = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        const Candidate& c = all[i];
        if (c.taken || c.compute > left.compute || c.memory > left.memory) continue;
        const double dc = static_cast<double>(left.compute - c.compute) / static_cast<double>(unit.compute);
        const double dm = static_cast<double>(left.memory - c.memory) / static_cast<double>(unit.memory);
        const double distance = std::sqrt(dc * dc + dm * dm);
        if (best < 0 || distance < least * (1 - 1e-12)) {
          best = static_cast<int32_t>(i);
          least = distance;
        }
      }
      const int32_t got = choice.TakeNearest(left);
      ASSERT_EQ(got, best) << seed;
      if (best < 0) break;
      Candidate& c = all[static_cast<size_t>(best)];
      c.taken = true;
      left.compute -= c.compute;
      left.memory -= c.memory;
    }
  }
}

// 100 tokens of budget and 1,000 of KV are left: in tokens the KV axis decides, in shares both count.
TEST(Distance, NormalisedWeighsBothAxes) {
  const auto nearest = [](Resources unit) {
    DistanceChoice choice(4);
    choice.Reset(unit);
    choice.Add(0, {20, 400});  // much KV for little compute
    choice.Add(1, {100, 112});
    return choice.TakeNearest({100, 1000});
  };
  EXPECT_EQ(nearest({1, 1}), 0);        // (80, 600) is nearer than (0, 888)
  EXPECT_EQ(nearest({100, 10000}), 1);  // (0.8, 0.06) is farther than (0, 0.0888)
}

// --- preemption ---

TEST(MostSlack, PreemptsTheMostSlackAndNeverLessThanTheNeedy) {
  Bed bed;
  bed.ThreeSteps();
  const SchedulerLimits limits = Limits();
  auto preemption = MakeMostSlackRecompute(limits);
  auto order = MakeFcfsOrder(limits);
  KvCacheConfig kc;
  kc.num_blocks = 100;
  kc.max_slots = 64;
  kc.max_blocks_per_slot = 100;
  KvCache kv(kc);
  PlanBuilder plan(limits, &kv);
  StepPlan step;
  const SlotId a = bed.Wait(10, {0, 500 * kMs, 0});
  const SlotId b = bed.Wait(10, {0, 900 * kMs, 0});
  const SlotId c = bed.Wait(10, {0, 900 * kMs, 0});
  for (const SlotId s : {a, b, c}) bed.Compute(s, 10);
  const SlotId newcomer = bed.Wait(75, {700 * kMs, 0, 0});
  const auto victim = [&](SlotId needy, TimeNs now = 0) {
    const StepView view = bed.View(now);
    plan.Begin(view, {100, 100, 0}, {64, 64}, &step);
    return preemption->Victim(view, plan, *order, needy);
  };
  EXPECT_EQ(victim(a), c);  // of equal slack the younger
  EXPECT_EQ(victim(b), c);
  EXPECT_EQ(victim(c), kNoSlot);                    // none has more
  EXPECT_EQ(victim(newcomer), c);                   // 680 against 880 ms
  EXPECT_EQ(victim(newcomer, 690 * kMs), kNoSlot);  // late: nothing to save
  // c comes back: until it has a new token it neither takes nor loses KV.
  bed.table.Preempt(c, 0);
  bed.table.Compact();
  EXPECT_EQ(victim(c), kNoSlot);
  bed.Compute(c, 5);
  EXPECT_EQ(victim(c), kNoSlot);
  EXPECT_EQ(victim(a), b);
  bed.Compute(c, 6);
  EXPECT_EQ(victim(a), c);
}

// The admission caches a sequence's state between queries: changes in between must show.
TEST(MultiResource, DemandFollowsChangesOfTheSequence) {
  Bed bed;
  bed.ThreeSteps();  // T_max = 20 ms, L_c = 75
  SchedulerLimits limits = Limits();
  const auto admission = MakeMultiResource(limits);
  bed.Compute(bed.Wait(16, {}), 16);  // runs, and will need a block
  const SlotId s = bed.Wait(64, {100 * kMs, 50 * kMs, 0});
  const SlotId other = bed.Wait(64, {70 * kMs, 50 * kMs, 0});
  const auto keeps_free = [&](TimeNs now_ns, SlotId slot, int32_t end) {
    return admission->Demand(bed.View(now_ns), slot, end).keep_free_blocks;
  };
  EXPECT_EQ(keeps_free(50 * kMs, s, 16), 4) << "30 ms of slack: the rest of its prompt, and a block";
  EXPECT_EQ(keeps_free(50 * kMs, s, 32), 3) << "the same sequence, a longer chunk";
  EXPECT_EQ(keeps_free(50 * kMs, other, 32), 2) << "no slack: urgent, the rest alone";
  EXPECT_EQ(keeps_free(50 * kMs, s, 32), 3);
  EXPECT_EQ(keeps_free(60 * kMs, s, 32), 2) << "10 ms later it is urgent";
  bed.Compute(s, 64);
  bed.table.Preempt(s, 60 * kMs);
  EXPECT_EQ(admission->Demand(bed.View(60 * kMs), s, 32).reserve_tokens, 65) << "preempted at the same moment";
}

}  // namespace
}  // namespace tactus::core
