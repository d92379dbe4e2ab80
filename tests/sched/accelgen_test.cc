// AccelGen, against examples worked out by hand and slow obvious references.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "loop/harness.h"
#include "sched/choices.h"
#include "sched/composition/distance.h"
#include "sched/slack.h"
#include "sched/view_of.h"
#include "seq/sequence_table.h"

namespace tactus::sched {
namespace {

constexpr DurationNs kMs = kMillisecond;

// All choices here note slack and nothing else.
NoteLayout& Notes() {
  static NoteLayout notes;
  notes.Column<SlackNote>();
  return notes;
}

// A table of sequences and results of steps to look back on.
struct Bed {
  explicit Bed(int32_t capacity = 64) : table(capacity, Notes().stride()) {}

  StepView View(TimeNs now_ns) {
    StepView v = testing::ViewOf(&table, 0, now_ns);
    v.recent = recent;
    return v;
  }
  void Step(DurationNs took_ns, int32_t prefill_tokens, int32_t chunks, int32_t decodes, int32_t preemptions = 0,
            DurationNs longest_preemption_ns = 0) {
    StepRecord r;
    r.step = static_cast<StepId>(recent.size());
    r.end_ns = took_ns;
    r.prefill_tokens = prefill_tokens;
    r.prefill_items = chunks;
    r.decode_tokens = decodes;
    r.preemptions = preemptions;
    r.longest_preemption_ns = longest_preemption_ns;
    recent.push_back(r);
  }
  // The steps of the examples: T_max = 20 ms, L_c = 300 / 4 = 75, P_max = 30 ms, P = 1 / 60.
  void ThreeSteps() {
    Step(10 * kMs, 100, 2, 10);
    Step(20 * kMs, 0, 0, 20, 1);
    Step(15 * kMs, 200, 2, 30, 0, 30 * kMs);
  }
  SlotId Wait(int32_t prompt, Slo slo, TimeNs at_ns = 0, int32_t output = 8) {
    SequenceSpec spec;
    spec.prompt_tokens = prompt;
    spec.max_output_tokens = output;
    spec.slo = slo;
    spec.arrival_ns = at_ns;
    return table.Add(spec, at_ns);
  }
  // Admits it and computes `tokens` of its prompt; at the prompt's end it has its first token.
  void Compute(SlotId s, int32_t tokens) {
    if (!table.holds_kv(s)) table.Admit(s, 0);
    const bool ends = table.columns().computed_planned[s] + tokens == table.columns().goal_tokens[s];
    table.PlanItem(s, tokens, ends, 0, false);
    table.CommitItem(s, tokens, ends ? 1 : 0);
  }

  SequenceTable table;
  std::vector<StepRecord> recent;
};

SchedulerLimits Limits() {
  SchedulerLimits l;
  l.max_num_seqs = 64;
  l.max_model_len = 8192;
  l.slot_capacity = 64;
  l.blocks_total = 1000;
  l.block_size = 16;
  l.notes = &Notes();
  return l;
}

// base + per_token * max(tokens, flat), and what decodes read of their contexts: throughput rises until `flat` and a
// little beyond.
struct FlatThenLinear final : StepTimeModel {
  DurationNs base_ns = 0, token_ns = 1000, context_ns = 0, row_ns = 0;
  int64_t flat = 0;
  int32_t tile = 64;
  DurationNs StepTimeNs(const StepShape& shape) const override {
    const int64_t behind = shape.chunks.empty() ? 0 : shape.chunks[0].context_tokens;
    return base_ns + token_ns * std::max<int64_t>(shape.tokens(), flat) +
           context_ns * (shape.decode_context_tokens + behind) + row_ns * shape.logit_rows;
  }
  int32_t tile_tokens() const override { return tile; }
};

// --- slack ---

TEST(Slack, OfPromptsAndDecodes) {
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
  // Passed over at 100 ms: 25 ms later it has waited for so long; once it runs it has not.
  slack.PassedOver(view, decode);
  const StepView later = bed.View(125 * kMs);
  slack.PassedOver(later, decode);
  EXPECT_EQ(slack.SlackNs(later, decode), (50 - 25 - 20) * kMs);
  slack.Took(later, decode);
  EXPECT_EQ(slack.SlackNs(later, decode), (50 - 20) * kMs);
}

// It has had tokens, so what it owes is the next one: the TBT objective counts, from when it lost its KV.
TEST(Slack, OfAPreemptedSequence) {
  Bed bed;
  bed.ThreeSteps();
  const SlackModel slack(Limits());
  const SlotId s = bed.Wait(209, {500 * kMs, 50 * kMs, 0});
  bed.Compute(s, 209);
  bed.table.Preempt(s, 80 * kMs);
  EXPECT_EQ(slack.SlackNs(bed.View(100 * kMs), s), (50 - 20 - 3 * 20) * kMs);
}

TEST(Slack, OfAJobCarriesOverWhatStepsLeave) {
  Bed bed;
  bed.ThreeSteps();
  const SlackModel slack(Limits());
  const SlotId s = bed.Wait(150, {0, 0, 10'000 * kMs}, 0, 8);
  // T_e = 2 * 20 + 8 * (20 + 30 / 60) = 204 ms; (10,000 - 204) / (2 + 8) = 979.6 ms to wait per step.
  const DurationNs share = 979'600'000;
  EXPECT_EQ(slack.SlackNs(bed.View(0), s), share);
  EXPECT_EQ(slack.SlackNs(bed.View(100 * kMs), s), share - 100 * kMs);
  slack.Took(bed.View(100 * kMs), s);  // 879.6 ms early
  bed.Compute(s, 75);
  EXPECT_EQ(slack.SlackNs(bed.View(120 * kMs), s), 2 * share - 100 * kMs);
  // Left out from 120 ms to 2,320 ms: more than it had. The next step has so much less.
  slack.PassedOver(bed.View(120 * kMs), s);
  const StepView late = bed.View(2320 * kMs);
  EXPECT_EQ(slack.SlackNs(late, s), 2 * share - 2300 * kMs);
  slack.Took(late, s);
  bed.Compute(s, 75);
  EXPECT_EQ(slack.SlackNs(late, s), 3 * share - 2300 * kMs);
}

// Who states an objective of the whole job alone owes no first token by the default of 2 s: there is nothing but its
// share.
TEST(Slack, AJobAloneHasNoDefaultForItsPrompt) {
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

// Fewer than 128 steps and a model: one step of the pivot stands in.
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

// --- pivot and budget ---

TEST(Pivot, IsTheFirstStepSizeWithin3PercentOfTheBestThroughput) {
  FlatThenLinear model;
  model.base_ns = 10'000;  // rate = t / (10 + t) per us: 0.9980 at 8192 - 2.7 % below is 0.9718, at t = 344
  SchedulerLimits limits = Limits();
  limits.step_time = &model;
  limits.max_model_len = 8192;
  EXPECT_EQ(FindPivot(limits).tokens, 320);  // 320 / 330 = 0.9697 >= 0.97 * 0.99878 = 0.96882 > 256 / 266 = 0.9624
  *limits.policy.Find<int64_t>("accelgen-pivot") = 1000;
  EXPECT_EQ(FindPivot(limits).tokens, 1000);
  EXPECT_EQ(FindPivot(limits).step_ns, 1'010'000);
}

struct BudgetCase {
  BudgetCase() {
    model.flat = 512;  // S_pf = 512 tokens in T_pf = 51.2 ms
    model.token_ns = 100'000;
    limits.step_time = &model;
  }
  int64_t Tokens(TimeNs now_ns = 0) {
    auto budget = MakeSloBudget(limits);
    auto order = MakeSlackOrder(limits);
    const StepView view = bed.View(now_ns);
    order->Rebuild(view);
    return budget->NextFor(view, order.get()).tokens;
  }
  FlatThenLinear model;
  SchedulerLimits limits = Limits();
  Bed bed;
};

TEST(SloBudget, TheTightestTbtDecides) {
  BudgetCase c;
  c.bed.Compute(c.bed.Wait(10, {0, 100 * kMs, 0}), 10);
  EXPECT_EQ(c.Tokens(), 1000);  // 512 * 100 / 51.2
  c.bed.Compute(c.bed.Wait(10, {0, 25 * kMs, 0}), 10);
  EXPECT_EQ(c.Tokens(), 250);
  c.bed.Compute(c.bed.Wait(10, {}), 10);  // reading speed: not the tightest
  EXPECT_EQ(c.Tokens(), 250);
}

// The equation allows 512 * 100 / 51.2 = 1,000 tokens, and knows nothing of contexts. Two decodes over 30 and 20 tokens
// read 5 ms of KV: (100 - 5) / 0.1 = 950 tokens keep the objective.
TEST(SloBudget, TheDecodesContextsTakeTheirTime) {
  BudgetCase c;
  c.model.tile = 1;
  c.model.context_ns = 100'000;
  c.bed.Compute(c.bed.Wait(29, {0, 100 * kMs, 0}), 29);
  c.bed.Compute(c.bed.Wait(19, {0, 400 * kMs, 0}), 19);
  EXPECT_EQ(c.Tokens(), 950);
}

// So does what the chunk lies behind, the longest of the half-done prompts': 40 tokens, 4 ms; and the decode's own 10,
// 1 ms.
TEST(SloBudget, TheContextBehindTheChunkTakesItsTime) {
  BudgetCase c;
  c.model.tile = 1;
  c.model.context_ns = 100'000;
  c.bed.Compute(c.bed.Wait(9, {0, 100 * kMs, 0}), 9);
  c.bed.Compute(c.bed.Wait(90, {9000 * kMs, 0, 0}), 40);
  c.bed.Compute(c.bed.Wait(90, {9000 * kMs, 0, 0}), 20);
  EXPECT_EQ(c.Tokens(), 950);
}

// And its rows of logits: one for each decode and one for the chunk, 1 ms each.
TEST(SloBudget, RowsOfLogitsTakeTheirTime) {
  BudgetCase c;
  c.model.tile = 1;
  c.model.row_ns = kMs;
  *c.limits.policy.Find<int64_t>("accelgen-pivot") = 512;  // whose own row counts too: 52.2 ms
  c.bed.Compute(c.bed.Wait(9, {0, 100 * kMs, 0}), 9);
  EXPECT_EQ(c.Tokens(), 980);
}

// Where not even the least step keeps it, the equation stands: a smaller step would only make everybody later.
TEST(SloBudget, AnObjectiveThatNoStepKeepsChangesNothing) {
  BudgetCase c;
  c.model.tile = 1;
  c.model.context_ns = 10 * kMs;
  c.bed.Compute(c.bed.Wait(29, {0, 100 * kMs, 0}), 29);
  EXPECT_EQ(c.Tokens(), 1000);
}

TEST(SloBudget, NeverBelowTheTileOrTheDecodesNorAboveTheCap) {
  BudgetCase c;
  c.bed.Compute(c.bed.Wait(10, {0, kMs, 0}), 10);
  EXPECT_EQ(c.Tokens(), 64);  // a tile instead of 10
  for (int i = 0; i < 63; ++i) c.bed.Compute(c.bed.Wait(10, {0, kMs, 0}), 10);
  EXPECT_EQ(c.Tokens(), 64);
  c.model.tile = 16;
  EXPECT_EQ(c.Tokens(), 64);  // the decodes
  BudgetCase loose;
  loose.bed.Compute(loose.bed.Wait(10, {0, 10'000 * kMs, 0}), 10);
  EXPECT_EQ(loose.Tokens(), 4096);
  loose.limits.token_budget = 700;
  EXPECT_EQ(loose.Tokens(), 700);
}

// T_max = 51.2 ms and L_c = 512 are those of the seed.
TEST(SloBudget, APromptHasWhatIsLeftOfItsObjectivePerChunk) {
  BudgetCase c;
  c.bed.Wait(1024, {400 * kMs, 0, 0});
  EXPECT_EQ(c.Tokens(), 2000);           // 400 / 2 ms
  EXPECT_EQ(c.Tokens(200 * kMs), 1000);  // (400 - 200) / 2 ms
  EXPECT_EQ(c.Tokens(350 * kMs), 512);   // 25 ms: no less than the pivot
  EXPECT_EQ(c.Tokens(400 * kMs), 2000);  // late: the whole objective again
  BudgetCase running;
  running.bed.Compute(running.bed.Wait(1024, {400 * kMs, 0, 0}), 512);
  EXPECT_EQ(running.Tokens(200 * kMs), 2000);  // one chunk left
}

TEST(SloBudget, AJobHasItsShareAndAStep) {
  BudgetCase c;
  c.bed.Wait(512, {0, 0, 1000 * kMs}, 0, 4);
  // T_e = 5 * 51.2 = 256; share = 744 / 5 = 148.8 ms, and one step of 51.2.
  EXPECT_EQ(c.Tokens(), 2000);
  EXPECT_EQ(c.Tokens(100 * kMs), 1000);
  EXPECT_EQ(c.Tokens(900 * kMs), 512);
}

// Without a model: the pivot until a step has been measured, then the fastest step of the window sets the pivot's time.
TEST(SloBudget, MeasuresWithoutAModel) {
  BudgetCase c;
  c.limits.step_time = nullptr;
  c.bed.Compute(c.bed.Wait(10, {0, 50 * kMs, 0}), 10);
  EXPECT_EQ(c.Tokens(), 512);
  c.bed.Step(100 * kMs, 1000, 2, 0);  // 10 tokens per ms
  EXPECT_EQ(c.Tokens(), 500);
  c.bed.Step(10 * kMs, 200, 2, 0);  // 20
  EXPECT_EQ(c.Tokens(), 1000);
  c.bed.Step(10 * kMs, 0, 0, 5);
  EXPECT_EQ(c.Tokens(), 1000);
}

// --- order ---

// Against a sort by exact slack, while the window (T_max, L_c) moves and sequences come and go.
TEST(SlackOrder, IsTheSortBySlack) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    Bed bed(120);
    SchedulerLimits limits = Limits();
    limits.slot_capacity = 120;
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
          return std::tuple(view.seq.preemptions[s] > 0 ? 0 : 1, slack.SlackNs(view, s), view.seq.arrival_order[s]);
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

// --- distance ---

// Algorithm 2, as it is written: while a candidate fits, take the one with the least distance.
TEST(Distance, IsAlgorithm2) {
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

TEST(MostSlack, GivesUpTheOneWithTheMostSlackAndNeverOneWithLess) {
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
    plan.Begin(view, {100, 100, 0}, 64, &step);
    return preemption->Victim(view, plan, *order, needy);
  };
  EXPECT_EQ(victim(a), c);  // of equal slack the younger
  EXPECT_EQ(victim(b), c);
  EXPECT_EQ(victim(c), kNoSlot);                    // nobody has more
  EXPECT_EQ(victim(newcomer), c);                   // 680 against 880 ms
  EXPECT_EQ(victim(newcomer, 690 * kMs), kNoSlot);  // late: nothing to save
  // c comes back: until it has a token again it neither takes nor gives.
  bed.table.Preempt(c, 0);
  bed.table.Compact();
  EXPECT_EQ(victim(c), kNoSlot);
  bed.Compute(c, 5);
  EXPECT_EQ(victim(c), kNoSlot);
  EXPECT_EQ(victim(a), b);
  bed.Compute(c, 6);
  EXPECT_EQ(victim(a), c);
}

}  // namespace
}  // namespace tactus::sched
