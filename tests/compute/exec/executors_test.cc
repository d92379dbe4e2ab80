// Tests of the executors that tests and benchmarks run on: a fake that accepted a broken plan, or a fault that never
// occurred, would let every test based on it pass.
#include <gtest/gtest.h>

#include "support/fake_executor.h"
#include "support/faulty_executor.h"
#include "support/step_driver.h"

namespace tactus::compute {
namespace {

FakeExecutorConfig Config() {
  FakeExecutorConfig c;
  c.num_blocks = 8;
  c.block_size = 4;
  c.max_slots = 4;
  c.swap_blocks = 2;
  c.max_in_flight = 2;
  return c;
}
Request Prompt(int32_t n) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < n; ++i) tokens.push_back(i * 7 % 60);
  return test::MakeRequest(tokens, test::Greedy());
}
// A first step of slot 0: six tokens over blocks 2 and 5.
StepPlan FirstStep(int32_t choice = 0) {
  StepPlan plan;
  plan.step = 0;
  auto request = std::make_shared<Request>(Prompt(6));
  plan.tokens = *request->prompt;
  plan.starts.push_back({.slot = 0, .choice = choice, .sampling = SamplingOf(*request, {})});
  plan.table_blocks = {2, 5};
  plan.table_updates.push_back({0, 0, 2, 0});
  plan.items.push_back({0, 0, 6, 1, true});
  plan.num_tokens = 6;
  return plan;
}
StepPlan Decode(int32_t position, TokenId token, StepId step) {
  StepPlan plan;
  plan.step = step;
  plan.tokens = {token};
  plan.items.push_back({0, position, 1, 1, true});
  plan.num_tokens = 1;
  return plan;
}

TEST(FakeExecutor, SamplesItsPredictedTokens) {
  for (const int32_t choice : {0, 1}) {
    const FakeExecutorConfig config = Config();
    FakeExecutor e(config);
    std::vector<TokenId> tokens = *Prompt(6).prompt;
    StepPlan plan = FirstStep(choice);
    for (StepId step = 0; step < 3; ++step) {
      e.Submit(plan);
      StepResult r;
      ASSERT_TRUE(e.Poll(&r));
      ASSERT_TRUE(r.status.ok());
      EXPECT_EQ(r.step, step);
      ASSERT_EQ(r.items.size(), 1u);
      EXPECT_EQ(r.items[0].accepted, step == 0 ? 6 : 1);
      ASSERT_EQ(r.tokens.size(), 1u);
      EXPECT_EQ(r.tokens[0], FakeExecutor::Expected(config, tokens, choice)) << step;
      tokens.push_back(r.tokens[0]);
      plan = Decode(static_cast<int32_t>(tokens.size()) - 1, tokens.back(), step + 1);
    }
    EXPECT_EQ(e.violation(), "");
    EXPECT_EQ(e.steps(), 3);
  }
  EXPECT_NE(FakeExecutor::Expected(Config(), {1, 2, 3}, 0), FakeExecutor::Expected(Config(), {1, 2, 3}, 1))
      << "choices differ";
}

TEST(FakeExecutor, ReportsTheRuleThatAPlanBreaks) {
  const auto violation = [](const std::function<void(StepPlan*)>& spoil, bool twice = false) {
    FakeExecutor e(Config());
    StepPlan plan = FirstStep();
    spoil(&plan);
    for (int i = 0; i < (twice ? 3 : 1); ++i) e.Submit(plan);
    return e.violation();
  };
  EXPECT_EQ(violation([](StepPlan*) {}), "");
  EXPECT_EQ(violation([](StepPlan*) {}, true), "more steps in flight than max_in_flight");
  EXPECT_EQ(violation([](StepPlan* p) { p->items.clear(); }), "an empty step");
  EXPECT_EQ(violation([](StepPlan* p) { p->items[0].slot = 4; }), "step 0: item of slot 4, limit 3");
  EXPECT_EQ(violation([](StepPlan* p) { p->table_updates[0].count = 1; }), "a position outside its block table");
  EXPECT_EQ(violation([](StepPlan* p) { p->starts.clear(); }), "a table update of a sequence that never started");
  EXPECT_EQ(violation([](StepPlan* p) { p->tokens[3] = -1; }), "an input token that does not exist");
  EXPECT_EQ(violation([](StepPlan* p) { p->swap_outs.push_back({7, 1, 4}); }), "");
}

// Another block in the table, or an overwritten block, yields another token.
TEST(FakeExecutor, AnswersDependOnEveryPositionRead) {
  const auto third_token = [](const std::function<void(StepPlan*)>& between) {
    FakeExecutor e(Config());
    StepResult r;
    e.Submit(FirstStep());
    EXPECT_TRUE(e.Poll(&r));
    StepPlan next = Decode(6, r.tokens[0], 1);
    between(&next);
    e.Submit(next);
    EXPECT_TRUE(e.Poll(&r));
    return r.tokens.at(0);
  };
  const TokenId sound = third_token([](StepPlan*) {});
  const auto other_block = [](StepPlan* p) {
    p->table_blocks.push_back(3);
    p->table_updates.push_back({0, 0, 1, 0});
  };
  EXPECT_NE(third_token(other_block), sound) << "an unwritten block";
  EXPECT_NE(third_token([](StepPlan* p) { p->copies = {{7, 2, 1}}; }), sound) << "one position overwritten";
  EXPECT_EQ(third_token([](StepPlan* p) { p->copies = {{2, 7, 4}}; }), sound);
  const auto swapped = [](int32_t saved) {  // of the block's four positions
    return [saved](StepPlan* p) {
      p->swap_outs.push_back({2, 0, saved});
      p->swap_ins.push_back({2, 0, 4});
    };
  };
  EXPECT_NE(third_token(swapped(3)), sound) << "a position not saved";
  EXPECT_EQ(third_token(swapped(4)), sound);
}

TEST(FakeExecutor, FaultsOccurAtTheirRate) {
  const auto first = [](const FakeExecutorConfig& config) {
    FakeExecutor e(config);
    e.Submit(FirstStep());
    StepResult r;
    EXPECT_TRUE(e.Poll(&r));
    return r;
  };
  FakeExecutorConfig c = Config();
  c.step_error_rate = 1;
  EXPECT_EQ(first(c).status.code(), StatusCode::kInternal);
  c = Config();
  c.item_error_rate = 1;
  EXPECT_EQ(first(c).items.at(0).status, ItemStatus::kBadLogits);
  EXPECT_EQ(first(c).items.at(0).num_tokens, 0);
  c = Config();
  c.item_lost_rate = 1;
  EXPECT_EQ(first(c).items.at(0).status, ItemStatus::kFailed);
  c = Config();
  c.reject_rate = 1;
  const StepResult rejected = first(c);
  EXPECT_EQ(rejected.items.at(0).status, ItemStatus::kOk);
  EXPECT_GE(rejected.items.at(0).accepted, 1);
  EXPECT_LT(rejected.items.at(0).accepted, 6);
  EXPECT_TRUE(rejected.tokens.empty());
  // A rate of one half, in a thousand steps.
  c = Config();
  c.step_error_rate = 0.5;
  FakeExecutor e(c);
  int failed = 0;
  for (int i = 0; i < 1000; ++i) {
    e.Submit(FirstStep());
    StepResult r;
    ASSERT_TRUE(e.Poll(&r));
    failed += !r.status.ok();
  }
  EXPECT_GT(failed, 420);
  EXPECT_LT(failed, 580);
}

// Reading what a failed step or a lost item should have written yields another token than a sound model's.
TEST(FakeExecutor, FailedWritesLeaveGarbageBehind) {
  for (const bool whole_step : {true, false}) {
    SCOPED_TRACE(whole_step ? "the step failed" : "the item was lost");
    int seen = 0;
    for (uint64_t seed = 0; seed < 64; ++seed) {
      FakeExecutorConfig c = Config();
      c.vocab_size = 1 << 30;  // no equal token by chance
      c.fault_seed = seed;
      (whole_step ? c.step_error_rate : c.item_lost_rate) = 0.5;
      FakeExecutor e(c);
      StepResult first, second;
      e.Submit(FirstStep());
      ASSERT_TRUE(e.Poll(&first));
      e.Submit(Decode(6, 11, 1));
      ASSERT_TRUE(e.Poll(&second));
      const auto sound = [](const StepResult& r) { return r.status.ok() && r.items.at(0).status == ItemStatus::kOk; };
      if (!sound(second)) continue;
      std::vector<TokenId> tokens = *Prompt(6).prompt;
      tokens.push_back(11);
      EXPECT_EQ(second.tokens.at(0) == FakeExecutor::Expected(c, tokens, 0), sound(first)) << "seed " << seed;
      seen += !sound(first);
    }
    EXPECT_GT(seen, 4);
  }
}

TEST(FakeExecutor, StepsInFlightRunOneAfterTheOther) {
  ManualClock clock(1000);
  FakeExecutorConfig c = Config();
  c.clock = &clock;
  c.can_chain = true;
  c.step_base_ns = 100;
  c.step_token_ns = 7;
  FakeExecutor e(c);
  EXPECT_EQ(e.NextReadyNs(), kNever);
  e.Submit(FirstStep());
  StepPlan next = Decode(6, 0, 1);
  next.items[0].input = InputSource::kChained;
  e.Submit(next);
  EXPECT_EQ(e.violation(), "");
  EXPECT_EQ(e.NextReadyNs(), 1000 + 100 + 42);
  StepResult r;
  clock.AdvanceTo(1141);
  EXPECT_FALSE(e.Poll(&r));
  clock.AdvanceTo(1142);
  ASSERT_TRUE(e.Poll(&r));
  EXPECT_EQ(r.start_ns, 1000);
  EXPECT_EQ(r.end_ns, 1142);
  EXPECT_EQ(e.NextReadyNs(), 1142 + 107);
  EXPECT_FALSE(e.Poll(&r));
  clock.AdvanceTo(1249);
  ASSERT_TRUE(e.Poll(&r));
  EXPECT_EQ(r.step, 1);
  EXPECT_EQ(r.start_ns, 1142);
}

TEST(NullExecutor, AnswersInOrderInEitherForm) {
  for (const bool short_form : {false, true}) {
    NullExecutor e(2, false, 9, short_form);
    EXPECT_EQ(e.traits().max_in_flight, 2);
    EXPECT_EQ(e.traits().has_tokens, !short_form);
    StepResult r;
    EXPECT_FALSE(e.Poll(&r));
    std::vector<StepPlan> plans;
    for (StepId s = 0; s < 5; ++s) {
      StepPlan plan;
      plan.step = s;
      plan.items = {{0, 0, 4, 0, false}, {1, 9, 1, 1, true}, {2, 3, 1, 1, true}};
      plans.push_back(plan);
    }
    e.Submit(plans[0]);
    for (StepId s = 0; s < 5; ++s) {
      if (s + 1 < 5) e.Submit(plans[static_cast<size_t>(s) + 1]);
      ASSERT_TRUE(e.Poll(&r));
      EXPECT_EQ(r.step, s);
      EXPECT_EQ(r.as_planned, short_form);
      if (short_form) continue;
      ASSERT_EQ(r.items.size(), 3u);
      EXPECT_EQ(r.items[0].accepted, 4);
      EXPECT_EQ(r.items[0].num_tokens, 0);
      EXPECT_EQ(r.items[2].token_offset, 1);
      EXPECT_EQ(r.tokens, (std::vector<TokenId>{9, 9}));
    }
    EXPECT_FALSE(e.Poll(&r));
  }
}

TEST(FaultyExecutor, FailsOnlyTheConfiguredItem) {
  using Kind = InjectedFault::Kind;
  FaultyExecutor e(std::make_unique<NullExecutor>(),
                   {{1, Kind::kItem, 1}, {2, Kind::kBadLogits, 0}, {3, Kind::kItem, 3}, {4, Kind::kStep}});
  EXPECT_EQ(e.traits().max_in_flight, 1);
  for (StepId s = 0; s < 6; ++s) {
    StepPlan plan;
    plan.step = s;
    plan.items = {{0, 0, 1, 1, true}, {1, 0, 1, 1, true}, {2, 0, 1, 1, true}};
    e.Submit(plan);
    StepResult r;
    r.logprobs = {{0, {}}, {1, {}}, {2, {}}};
    ASSERT_TRUE(e.Poll(&r));
    EXPECT_EQ(r.status.ok(), s != 4) << s;
    if (s == 4) {
      EXPECT_TRUE(r.items.empty() && r.tokens.empty() && r.logprobs.empty());
      continue;
    }
    ASSERT_EQ(r.items.size(), 3u);
    for (int32_t i = 0; i < 3; ++i) {
      const ItemStatus want = s == 1 && i == 1   ? ItemStatus::kFailed
                              : s == 2 && i == 0 ? ItemStatus::kBadLogits
                                                 : ItemStatus::kOk;
      EXPECT_EQ(r.items[static_cast<size_t>(i)].status, want) << "step " << s << " item " << i;
      EXPECT_EQ(r.items[static_cast<size_t>(i)].num_tokens, want == ItemStatus::kOk ? 1 : 0);
      const auto of_item = [i](const StepResult::TokenLogprobs& l) { return l.item == i; };
      EXPECT_EQ(std::count_if(r.logprobs.begin(), r.logprobs.end(), of_item), want == ItemStatus::kOk ? 1 : 0);
    }
  }
}

}  // namespace
}  // namespace tactus::compute
