// What a step runner accepts and refuses at every limit of its memory: the last plan that fits, and the first that does
// not.
#include <gtest/gtest.h>

#include "compute/exec/tiny_model.h"

namespace tactus::test {
namespace {

class PlanLimits : public testing::Test {
 protected:
  PlanLimits() : model_(LoadTiny("llama-gqa")) {
    compute::CpuExecutorOptions options =
        model_.Options();  // 8 slots, 8 items, 256 tokens per step, 160 positions in blocks of 16
    options.num_blocks = 20;
    options.swap_blocks = 3;
    auto runner = compute::StepRunner::Create(model_.config, model_.weights, options);
    TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
    runner_ = std::move(*runner);
  }
  // One token at position 3 of slot 0.
  static StepPlan Good() {
    StepPlan plan;
    plan.step = 5;
    StepItem item;
    item.slot = 0;
    item.first_position = 3;
    item.count = 1;
    item.logit_rows = 1;
    plan.items.push_back(item);
    plan.tokens = {1};
    return plan;
  }
  Status Run(const std::function<void(StepPlan&)>& change) {
    StepPlan plan = Good();
    change(plan);
    StepResult result;
    runner_->Run(plan, &result);
    EXPECT_EQ(result.step, 5);
    return result.status;
  }
  TinyModel model_;
  std::unique_ptr<compute::StepRunner> runner_;
};

TEST_F(PlanLimits, APlanAtEveryLimitRuns) {
  const std::pair<const char*, std::function<void(StepPlan&)>> plans[] = {
      {"as it is", [](StepPlan&) {}},
      {"the last slot", [](StepPlan& p) { p.items[0].slot = 7; }},
      {"a start of the last slot", [](StepPlan& p) { p.starts.push_back({.slot = 7, .choice = 0}); }},
      {"the first position", [](StepPlan& p) { p.items[0].first_position = 0; }},
      {"the last position", [](StepPlan& p) { p.items[0].first_position = 159; }},
      {"all positions", [](StepPlan& p) { p.items[0] = {0, 0, 160, 160, false}, p.tokens.assign(160, 1); }},
      {"no logits", [](StepPlan& p) { p.items[0].logit_rows = 0; }},
      {"the last token", [](StepPlan& p) { p.items[0].token_offset = 1, p.tokens = {1, 2}; }},
      {"as many items as may be", [](StepPlan& p) { p.items.resize(8, p.items[0]); }},
      {"as many tokens as may be",
       [](StepPlan& p) {
         p.items[0] = {0, 0, 128, 1, false};
         p.items.push_back({1, 0, 128, 1, false});
         p.tokens.assign(128, 1);
       }},
      {"the last table entries",
       [](StepPlan& p) { p.table_blocks = {19, 0}, p.table_updates.push_back({7, 8, 2, 0}); }},
      {"a whole table", [](StepPlan& p) { p.table_blocks.assign(10, 2), p.table_updates.push_back({0, 0, 10, 0}); }},
      {"a copy of the last block", [](StepPlan& p) { p.copies = {{19, 0, 16}, {0, 19, 1}}; }},
      {"the last host block", [](StepPlan& p) { p.swap_outs = {{19, 2, 16}}, p.swap_ins = {{0, 0, 1}}; }},
      {"an item of no tokens of the host",
       [](StepPlan& p) { p.items[0].input = InputSource::kChained, p.tokens.clear(); }},
  };
  for (const auto& [what, change] : plans) {
    const Status status = Run(change);
    EXPECT_TRUE(status.ok()) << what << ": " << status.ToString();
  }
}

TEST_F(PlanLimits, APlanBeyondAnyLimitIsRefused) {
  const std::pair<const char*, std::function<void(StepPlan&)>> plans[] = {
      {"item of slot -1, limit 7", [](StepPlan& p) { p.items[0].slot = -1; }},
      {"item of slot 8, limit 7", [](StepPlan& p) { p.items[0].slot = 8; }},
      {"start of slot 8, limit 7", [](StepPlan& p) { p.starts.push_back({.slot = 8, .choice = 0}); }},
      {"end of slot 8, limit 7", [](StepPlan& p) { p.forgets = {8}; }},
      {"adapter 1, limit 0", [](StepPlan& p) { p.starts.push_back({.slot = 0, .adapter = 1}); }},
      {"draft tokens -1, limit 64", [](StepPlan& p) { p.items[0].draft_tokens = -1; }},
      {"draft tokens 65, limit 64", [](StepPlan& p) { p.items[0].draft_tokens = 65; }},
      {"logit rows of an item with drafts 1, limit 2",
       [](StepPlan& p) { p.items[0].draft_tokens = 1, p.items[0].sample = true, p.items[0].logit_rows = 1; }},
      {"table of slot -1, limit 7", [](StepPlan& p) { p.table_updates.push_back({-1, 0, 0, 0}); }},
      {"table of slot 8, limit 7", [](StepPlan& p) { p.table_updates.push_back({8, 0, 0, 0}); }},
      {"table entry 0, limit 10", [](StepPlan& p) { p.table_blocks = {1}, p.table_updates.push_back({0, -1, 1, 0}); }},
      {"table entry -1, limit 10", [](StepPlan& p) { p.table_updates.push_back({0, 0, -1, 0}); }},
      {"table entry 11, limit 10",
       [](StepPlan& p) { p.table_blocks.assign(11, 1), p.table_updates.push_back({0, 0, 11, 0}); }},
      {"end of table_blocks 0, limit 1",
       [](StepPlan& p) { p.table_blocks = {1}, p.table_updates.push_back({0, 0, 1, -1}); }},
      {"end of table_blocks 2, limit 1",
       [](StepPlan& p) { p.table_blocks = {1}, p.table_updates.push_back({0, 0, 2, 0}); }},
      {"block -1, limit 19", [](StepPlan& p) { p.table_blocks = {-1}; }},
      {"block 20, limit 19", [](StepPlan& p) { p.table_blocks = {20}; }},
      {"copy from block 20, limit 19", [](StepPlan& p) { p.copies = {{20, 0, 1}}; }},
      {"copy from block -1, limit 19", [](StepPlan& p) { p.copies = {{-1, 0, 1}}; }},
      {"copy to block 20, limit 19", [](StepPlan& p) { p.copies = {{0, 20, 1}}; }},
      {"copied tokens 17, limit 16", [](StepPlan& p) { p.copies = {{0, 1, 17}}; }},
      {"copied tokens -1, limit 16", [](StepPlan& p) { p.copies = {{0, 1, -1}}; }},
      {"swapped block 20, limit 19", [](StepPlan& p) { p.swap_outs = {{20, 0, 1}}; }},
      {"swapped block -1, limit 19", [](StepPlan& p) { p.swap_ins = {{-1, 0, 1}}; }},
      {"host block 3, limit 2", [](StepPlan& p) { p.swap_ins = {{0, 3, 1}}; }},
      {"swapped tokens 0, limit 16", [](StepPlan& p) { p.swap_outs = {{0, 0, 0}}; }},
      {"items 9, limit 8", [](StepPlan& p) { p.items.resize(9, p.items[0]); }},
      {"end of item 161, limit 160", [](StepPlan& p) { p.items[0].first_position = 160; }},
      {"end of item 0, limit 160", [](StepPlan& p) { p.items[0].first_position = -1; }},
      {"end of item 3, limit 160", [](StepPlan& p) { p.items[0].count = 0; }},
      {"logit rows 2, limit 1", [](StepPlan& p) { p.items[0].logit_rows = 2; }},
      {"logit rows -1, limit 1", [](StepPlan& p) { p.items[0].logit_rows = -1; }},
      {"sampled item's logit rows 0, limit 1",
       [](StepPlan& p) { p.items[0].logit_rows = 0, p.items[0].sample = true; }},
      {"chained item's tokens 2, limit 1",
       [](StepPlan& p) { p.items[0].input = InputSource::kChained, p.items[0].count = 2; }},
      {"end of input tokens 2, limit 1", [](StepPlan& p) { p.items[0].token_offset = 1; }},
      {"end of input tokens 0, limit 1", [](StepPlan& p) { p.items[0].token_offset = -1; }},
      {"tokens 257, limit 256",
       [](StepPlan& p) {
         p.items[0] = {0, 0, 128, 1, false};
         p.items.push_back({1, 0, 129, 1, false});
         p.tokens.assign(129, 1);
       }},
  };
  for (const auto& [what, change] : plans) {
    const Status status = Run(change);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << what;
    EXPECT_EQ(status.message(), std::string("step 5: ") + what);
  }
}

TEST_F(PlanLimits, ZeroOptionsAreRefusedByName) {
  const std::pair<const char*, std::function<void(compute::CpuExecutorOptions&)>> options[] = {
      {"num_blocks", [](compute::CpuExecutorOptions& o) { o.num_blocks = 0; }},
      {"block_size", [](compute::CpuExecutorOptions& o) { o.block_size = 0; }},
      {"max_slots", [](compute::CpuExecutorOptions& o) { o.max_slots = 0; }},
      {"max_step_tokens", [](compute::CpuExecutorOptions& o) { o.max_step_tokens = 0; }},
      {"max_step_items", [](compute::CpuExecutorOptions& o) { o.max_step_items = 0; }},
      {"max_model_len", [](compute::CpuExecutorOptions& o) { o.max_model_len = 0; }},
      {"max_in_flight", [](compute::CpuExecutorOptions& o) { o.max_in_flight = 0; }},
  };
  for (const auto& [name, change] : options) {
    compute::CpuExecutorOptions o = model_.Options();
    change(o);
    const Status status = compute::StepRunner::Create(model_.config, model_.weights, o).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(status.message(), std::string(name) + " = 0, but at least 1 is needed");
  }
  compute::CpuWeights fewer = model_.weights;
  fewer.layers.pop_back();
  EXPECT_EQ(compute::StepRunner::Create(model_.config, fewer, model_.Options()).status().code(),
            StatusCode::kInvalidArgument);
}

// A vocabulary's first and last token run, their neighbours outside do not. Slots remember only the tokens that they
// sampled.
TEST_F(PlanLimits, OnlyTokensOfTheVocabularyRun) {
  const auto vocab = static_cast<TokenId>(model_.config.vocab_size);
  for (const auto& [token, good] :
       {std::pair<TokenId, bool>(0, true), {vocab - 1, true}, {vocab, false}, {-1, false}}) {
    StepPlan plan = Good();
    plan.tokens = {token};
    StepResult result;
    runner_->Run(plan, &result);
    ASSERT_TRUE(result.status.ok());
    EXPECT_EQ(result.items.at(0).status, good ? ItemStatus::kOk : ItemStatus::kFailed) << token;
  }
}

// A chained item before any sampled token computes token 0, not the last token of the slot's previous sequence.
TEST_F(PlanLimits, AStartForgetsItsSlotsLastToken) {
  std::vector<float> row;
  runner_->set_logits_observer(
      [&](int32_t, int32_t, std::span<const float> logits) { row.assign(logits.begin(), logits.end()); });
  const auto first_row = [&](bool chained, bool sample) {
    StepPlan plan = Good();
    plan.starts.push_back({.slot = 0, .sampling = SamplingOf(MakeRequest({1, 2}, Greedy()), {})});
    plan.items[0].first_position = 0;
    plan.items[0].sample = sample;
    plan.items[0].input = chained ? InputSource::kChained : InputSource::kHost;
    plan.tokens = {0};
    StepResult result;
    runner_->Run(plan, &result);
    EXPECT_TRUE(result.status.ok()) << result.status.ToString();
    return sample ? std::vector<float>{static_cast<float>(result.tokens.at(0))} : row;
  };
  ASSERT_NE(first_row(false, true), std::vector<float>{0.0f}) << "the test needs another token to be remembered";
  const std::vector<float> chained = first_row(true, false);
  EXPECT_EQ(chained, first_row(false, false));
}

}  // namespace
}  // namespace tactus::test
