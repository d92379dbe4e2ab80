#include "sim/executor/sim_executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "sim/linear_model.h"

namespace tactus::sim {
namespace {

// Builds plans by hand: every sequence starts when it is first named.
class Driver {
 public:
  explicit Driver(const LinearModel& model, const StepNoise& noise = {})
      : executor_({.step_time = &model, .clock = &clock_, .max_slots = 16, .noise = noise}) {}

  struct Item {
    SlotId slot;
    int32_t first, count;
    bool prompt, sample;
  };
  void Start(SlotId slot, int32_t prompt, int32_t output, bool ignore_eos = false) {
    SimRequest request;
    request.prompt_tokens = prompt;
    request.output_tokens = output;
    request.stop.ignore_eos = ignore_eos;
    executor_.Expect(++handle_, request);
    starts_.push_back({.slot = slot, .request = handle_});
  }
  void Submit(const std::vector<Item>& items) {
    StepPlan& plan = plans_.emplace_back();
    plan.step = next_++;
    plan.starts.swap(starts_);
    for (const Item& i : items) {
      if (i.prompt) {
        plan.prompt_items.push_back(static_cast<int32_t>(plan.items.size()));
      } else {
        plan.decode_context_tokens += i.first + 1;
        ++plan.num_decodes;
      }
      plan.items.push_back({i.slot, i.first, i.count, i.sample, i.sample});
      plan.num_tokens += i.count;
      plan.logit_rows += i.sample;
    }
    executor_.Submit(plan);
  }
  // Advances the clock to the next step's end and returns its result.
  const StepResult& Next() {
    clock_.AdvanceTo(executor_.NextReadyNs());
    EXPECT_TRUE(executor_.Poll(&result_));
    return result_;
  }

  ManualClock clock_;
  SimExecutor executor_;
  std::vector<SequenceStart> starts_;
  RequestHandle handle_ = 0;
  std::deque<StepPlan> plans_;
  StepResult result_;
  StepId next_ = 0;
};

DurationNs Bubble(const SimExecutor& e, size_t stage, BubbleCause cause) {
  return e.figures().stages[stage].bubble_ns[static_cast<size_t>(cause)];
}

TEST(SimExecutor, AStepEndsAfterTheModelsTime) {
  LinearModel model;
  Driver d(model);
  d.clock_.AdvanceTo(500);
  d.Start(0, 100, 3);
  d.Submit({{0, 0, 60, true, false}});
  EXPECT_EQ(d.executor_.NextReadyNs(), 500 + 1'000'000 + 60 * 10'000);
  EXPECT_FALSE(d.executor_.Poll(&d.result_));
  const StepResult& r = d.Next();
  EXPECT_EQ(r.step, 0);
  EXPECT_TRUE(r.as_planned && r.status.ok() && r.stops.empty());
  EXPECT_EQ(r.start_ns, 500);
  EXPECT_EQ(r.end_ns, 1'600'500);
  EXPECT_EQ(d.executor_.NextReadyNs(), kNever);
}

// As on a GPU: the next step is given while one is computed, and begins at its end.
TEST(SimExecutor, AStepInFlightBehindAnotherBeginsAtItsEnd) {
  LinearModel model;
  ManualClock clock;
  SimExecutor executor({.step_time = &model, .clock = &clock, .max_slots = 1, .max_in_flight = 2, .can_chain = true});
  EXPECT_EQ(executor.traits().max_in_flight, 2);
  EXPECT_TRUE(executor.traits().can_chain);
  StepPlan plans[2];
  for (StepId step = 0; step < 2; ++step) {
    StepPlan& plan = plans[step];
    plan.step = step;
    plan.items.push_back({.slot = 0, .first_position = static_cast<int32_t>(step), .count = 1});
    plan.num_tokens = plan.num_decodes = 1;
    executor.Submit(plan);
  }
  StepResult results[2];
  for (StepResult& result : results) {
    clock.AdvanceTo(executor.NextReadyNs());
    ASSERT_TRUE(executor.Poll(&result));
  }
  EXPECT_EQ(results[0].start_ns, 0);
  EXPECT_GT(results[0].end_ns, 0);
  EXPECT_EQ(results[1].start_ns, results[0].end_ns);
  EXPECT_GT(results[1].end_ns, results[1].start_ns);
}

TEST(SimExecutor, ReportsEndedAnswersAlsoAfterAPreemption) {
  LinearModel model;
  Driver d(model);
  d.Start(3, 10, 3);
  d.Start(5, 4, 1);
  d.Submit({{3, 0, 10, true, true}, {5, 0, 4, true, true}});
  EXPECT_EQ(d.Next().stops, std::vector<int32_t>{1});  // ends after its first token
  d.Submit({{3, 10, 1, false, true}});
  EXPECT_TRUE(d.Next().stops.empty());
  d.Start(3, 10, 3);  // preempted after 2 generated tokens: 12 known
  d.Submit({{3, 0, 8, true, false}});
  EXPECT_TRUE(d.Next().stops.empty());
  d.Submit({{3, 8, 4, true, true}});  // the end of the recomputed prompt samples the third
  EXPECT_EQ(d.Next().stops, std::vector<int32_t>{0});
}

// A request has different handles on different replicas.
TEST(SimExecutor, AcceptedDraftsDependOnTheRequestNotOnItsHandle) {
  const auto accepted = [](RequestHandle handle, int64_t index) {
    LinearModel model;
    ManualClock clock;
    SimExecutor executor({.step_time = &model, .clock = &clock, .max_slots = 1, .draft_acceptance = 0.7, .seed = 3});
    SimRequest request;
    request.prompt_tokens = 10;
    request.output_tokens = 10'000;
    request.index = index;
    executor.Expect(handle, request);
    std::vector<int32_t> all;
    std::deque<StepPlan> plans;
    for (StepId step = 0; step < 20; ++step) {
      StepPlan& plan = plans.emplace_back();
      plan.step = step;
      if (step == 0) plan.starts.push_back({.slot = 0, .request = handle});
      StepItem& item = plan.items.emplace_back();
      item.slot = 0;
      item.first_position = 10 + 9 * static_cast<int32_t>(step);
      item.count = 9;
      item.draft_tokens = 8;
      item.sample = true;
      item.logit_rows = 9;
      plan.num_tokens = 9;
      plan.draft_tokens = 8;
      executor.Submit(plan);
      clock.AdvanceTo(executor.NextReadyNs());
      StepResult result;
      EXPECT_TRUE(executor.Poll(&result));
      all.insert(all.end(), result.accepted_drafts.begin(), result.accepted_drafts.end());
    }
    EXPECT_EQ(all.size(), 20u);
    return all;
  };
  EXPECT_EQ(accepted(5, 7), accepted(9, 7));
  EXPECT_NE(accepted(5, 7), accepted(5, 8));
}

TEST(SimExecutor, WithIgnoreEosOnlyTheLengthEndsAnAnswer) {
  LinearModel model;
  Driver d(model);
  d.Start(0, 10, 1, true);
  d.Submit({{0, 0, 10, true, true}});
  EXPECT_TRUE(d.Next().stops.empty());
}

TEST(SimExecutor, SwapCopiesAndPaddingReachTheModel) {
  LinearModel model;
  model.swap_ns = 7;
  model.padding_ns = 11;
  Driver d(model);
  StepPlan plan;
  plan.step = 0;
  plan.items.push_back({0, 5, 1, 1, true});
  plan.num_tokens = 1;
  plan.swap_outs.resize(2);
  plan.swap_ins.resize(3);
  plan.padded_tokens = 13;
  d.Start(0, 5, 9);
  plan.starts.swap(d.starts_);
  d.executor_.Submit(plan);
  EXPECT_EQ(d.executor_.NextReadyNs(), 1'000'000 + 100'000 + 5 * 7 + 13 * 11);
}

// Decode steps of 1.1 ms. The step's factor applies to both stages and the send between them.
TEST(SimExecutor, NoiseMultipliesAStepsTime) {
  const StepNoise noise({.with_prompts = 0, .decodes_only = 0.5}, 7, 0);
  for (const int32_t stages : {1, 2}) {
    LinearModel model;
    model.num_stages = stages;
    model.send_ns = 300'000;
    Driver d(model, noise);
    d.Start(0, 10, 100);
    d.Submit({{0, 0, 10, true, true}});
    EXPECT_EQ(d.Next().end_ns, 1'100'000 * stages + 300'000 * (stages - 1)) << "prompts do not vary here";
    for (StepId step = 1; step < 20; ++step) {
      d.Submit({{0, 9 + static_cast<int32_t>(step), 1, false, true}});
      const StepResult& r = d.Next();
      const double ns = noise.FactorOf(step, false) * (1'100'000 * stages + 300'000 * (stages - 1));
      EXPECT_NEAR(static_cast<double>(r.end_ns - r.start_ns), ns, 2) << "step " << step << ", stages " << stages;
      EXPECT_GT(std::abs(ns / (1'100'000 * stages + 300'000 * (stages - 1)) - 1), 1e-6) << "step " << step;
    }
  }
}

// Two stages with equal steps and no transfer time: once the pipeline is full, no stage waits.
TEST(SimExecutor, EqualStepsLeaveNoBubblesOnceThePipelineIsFull) {
  LinearModel model;
  model.num_stages = 2;
  Driver d(model);
  d.Start(0, 10, 100);
  d.Submit({{0, 0, 10, true, true}});
  d.Start(1, 10, 100);
  d.Submit({{1, 0, 10, true, true}});
  EXPECT_EQ(d.executor_.traits().max_in_flight, 2);
  int32_t at[2] = {10, 10};
  for (int i = 0; i < 20; ++i) {
    d.Next();
    const SlotId s = i % 2;
    d.Submit({{s, at[s]++, 1, false, true}});
  }
  for (int i = 0; i < 2; ++i) d.Next();
  d.executor_.Close();
  const auto& f = d.executor_.figures();
  // Prefill and decode steps both take 1.1 ms per stage.
  for (size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(f.stages[k].bubbles(), 0) << k;
    EXPECT_EQ(f.stages[k].busy_ns, 22 * 1'100'000);
  }
  EXPECT_EQ(d.clock_.NowNs(), 23 * 1'100'000);
}

// Stage times of steps 0 to 3, in ms: 2, 4, 2, 2. By hand: stage 0 runs 0-2, 2-6; step 0 leaves stage 1 at 4, then step
// 2 waits for stage 0 until 6; stage 1 idles from 4 to 6 for step 1 (unequal prefills), runs 6-10; step 2 on stage 0
// 6-8, stage 1 10-12; step 3 is submitted at 10, so stage 0 idles from 8 to 10.
TEST(SimExecutor, BubblesAndCausesMatchValuesComputedByHand) {
  LinearModel model;
  model.base_ns = 0;
  model.decode_ns = 2 * kMillisecond;
  model.prefill_ns = kMillisecond / 10;
  model.num_stages = 2;
  const auto run = [&](bool second_is_prefill) {
    auto d = std::make_unique<Driver>(model);
    d->Start(0, 20, 9);
    d->Submit({{0, 0, 20, true, false}});  // 2 ms
    d->Start(1, 40, 9);
    d->Start(2, 5, 9);
    if (second_is_prefill) {
      d->Submit({{1, 0, 40, true, false}});  // 4 ms
    } else {
      d->Submit({{1, 50, 1, false, true}, {2, 50, 1, false, true}});
    }
    EXPECT_EQ(d->Next().end_ns, 4 * kMillisecond);
    d->Start(3, 20, 9);
    d->Submit({{3, 0, 20, true, false}});
    EXPECT_EQ(d->Next().end_ns, 10 * kMillisecond);
    d->Start(4, 20, 9);
    d->Submit({{4, 0, 20, true, false}});
    EXPECT_EQ(d->Next().end_ns, 12 * kMillisecond);
    EXPECT_EQ(d->Next().end_ns, 14 * kMillisecond);
    d->executor_.Close();
    return d;
  };
  const auto prefills = run(true), mixed = run(false);
  EXPECT_EQ(Bubble(prefills->executor_, 1, BubbleCause::kPrefills), 2 * kMillisecond);
  EXPECT_EQ(Bubble(prefills->executor_, 0, BubbleCause::kPrefills), 2 * kMillisecond);
  EXPECT_EQ(prefills->executor_.figures().stages[0].bubbles(), 2 * kMillisecond);
  EXPECT_EQ(prefills->executor_.figures().stages[1].bubbles(), 2 * kMillisecond);
  EXPECT_EQ(Bubble(mixed->executor_, 1, BubbleCause::kPrefillDecode), 2 * kMillisecond);
  EXPECT_EQ(Bubble(mixed->executor_, 0, BubbleCause::kPrefillDecode), 2 * kMillisecond);
  // Sequences 1 and 4 waited 2 ms each, 0 and 3 not at all.
  const results::Histogram& per_request = *prefills->executor_.figures().request_bubble_ns;
  EXPECT_EQ(per_request.count(), 5);  // slot 2 started and never ran
  EXPECT_NEAR(per_request.sum(), 4e6, 10);
  EXPECT_EQ(prefills->executor_.figures().request_bubble_sum_ns[0], 4'000'000);
}

TEST(SimExecutor, UnequalContextsAndTransfersAreSeparateCauses) {
  LinearModel model;
  model.base_ns = 0;
  model.decode_ns = 0;
  model.context_ns = 10'000;
  model.send_ns = 300'000;
  model.num_stages = 2;
  Driver d(model);
  d.Start(0, 1, 9);
  d.Start(1, 1, 9);
  d.Submit({{0, 99, 1, false, true}});   // 1 ms per stage
  d.Submit({{1, 299, 1, false, true}});  // 3 ms per stage
  // Stage 0: 0-1, 1-4. Stage 1: 1.3-2.3, then idle until 4.3: 0.3 of it for the transfer.
  EXPECT_EQ(d.Next().end_ns, 2'300'000);
  EXPECT_EQ(d.Next().end_ns, 7'300'000);
  EXPECT_EQ(Bubble(d.executor_, 1, BubbleCause::kCommunication), 300'000);
  EXPECT_EQ(Bubble(d.executor_, 1, BubbleCause::kContexts), 1'700'000);
}

// Three stages; a prompt of 6 ms per stage, then decodes of 1 ms. By hand: stage 0 runs the prompt 0-6, decodes a 6-7
// and b 7-8, and waits until the prompt leaves at 18. Stage 1: prompt 6-12, a 12-13, b 13-14 (after waiting 5 ms).
// Stage 2: prompt 12-18, a 18-19, b 19-20. Decode c, planned at 18, finds stage 0 idle for 10 ms (8-18), stage 1 for 5
// (14-19) and stage 2 for none. All decodes are equal, so the prompt is the cause of both.
TEST(SimExecutor, AStageInheritsTheCauseOfALateStep) {
  LinearModel model;
  model.base_ns = 0;
  model.decode_ns = kMillisecond;
  model.prefill_ns = kMillisecond / 10;
  model.num_stages = 3;
  const auto run = [&](bool longer) {
    auto d = std::make_unique<Driver>(model);
    for (const SlotId slot : {0, 1, 2, 3, 4}) d->Start(slot, 60, 9);
    d->Submit({{0, 0, 60, true, false}});
    d->Submit({{1, 70, 1, false, true}});
    d->Submit({{2, 70, 1, false, true}});
    EXPECT_EQ(d->Next().end_ns, 18 * kMillisecond);
    if (longer) {
      d->Submit({{3, 70, 1, false, true}, {4, 70, 1, false, true}});
    } else {
      d->Submit({{3, 70, 1, false, true}});
    }
    for (int i = 0; i < 3; ++i) d->Next();
    return d;
  };
  const auto alike = run(false);
  const SimExecutor& e = alike->executor_;
  EXPECT_EQ(Bubble(e, 0, BubbleCause::kPrefillDecode), 10 * kMillisecond);
  EXPECT_EQ(Bubble(e, 1, BubbleCause::kPrefillDecode), 5 * kMillisecond);
  EXPECT_EQ(e.figures().stages[2].bubbles(), 0);
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(Bubble(e, k, BubbleCause::kContexts), 0) << k << ": an echo of the prompt";
  // With two decodes in c, 2 ms, stage 1 waits a sixth millisecond, caused by the decodes.
  const auto unequal = run(true);
  EXPECT_EQ(Bubble(unequal->executor_, 0, BubbleCause::kPrefillDecode), 10 * kMillisecond);
  EXPECT_EQ(Bubble(unequal->executor_, 1, BubbleCause::kPrefillDecode), 5 * kMillisecond);
  EXPECT_EQ(Bubble(unequal->executor_, 1, BubbleCause::kContexts), kMillisecond);
  EXPECT_EQ(unequal->executor_.figures().stages[2].bubbles(), 2 * kMillisecond);
}

// The same without the third step: stage 0 lacked work, and so did the stages after it.
TEST(SimExecutor, LackOfWorkIsInheritedToo) {
  LinearModel model;
  model.base_ns = 0;
  model.decode_ns = kMillisecond;
  model.num_stages = 3;
  Driver d(model);
  for (const SlotId slot : {0, 1, 2}) d.Start(slot, 60, 9);
  d.Submit({{0, 70, 1, false, true}});
  d.clock_.AdvanceTo(2 * kMillisecond);
  d.Submit({{1, 70, 1, false, true}});  // a millisecond late
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(Bubble(d.executor_, k, BubbleCause::kStarved), kMillisecond) << k;
    EXPECT_EQ(d.executor_.figures().stages[k].bubbles(), kMillisecond) << k;
  }
}

TEST(SimExecutor, APipelineThatIsNotFullStarves) {
  LinearModel model;
  model.num_stages = 2;
  Driver d(model);
  d.Start(0, 10, 9);
  d.Submit({{0, 0, 10, true, true}});
  d.Next();
  d.Submit({{0, 10, 1, false, true}});
  d.Next();
  for (size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(Bubble(d.executor_, k, BubbleCause::kStarved), 1'100'000) << k;
    EXPECT_EQ(d.executor_.figures().stages[k].bubbles(), 1'100'000) << k;
  }
  d.executor_.Close();
  EXPECT_LE(d.executor_.figures().request_bubble_ns->max(), 1);  // lack of work is no bubble of a request
}

}  // namespace
}  // namespace tactus::sim
