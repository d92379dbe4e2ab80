// What the CPU executor promises beyond the contract of tests/contract: steps without allocations, logprobs of the raw
// logits, errors of weights and memory.
#include "compute/exec/cpu_executor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compute/exec/allocation_count.h"
#include "compute/exec/tiny_model.h"
#include "support/faulty_executor.h"
#include "support/result_waiter.h"

namespace tactus::test {
namespace {

std::vector<TokenId> Prompt(int32_t n, int32_t seed = 3) {
  std::vector<TokenId> tokens(static_cast<size_t>(n));
  for (int32_t i = 0; i < n; ++i) tokens[static_cast<size_t>(i)] = (i * 7 + seed) % 120;
  return tokens;
}

std::unique_ptr<compute::StepRunner> MakeRunner(const TinyModel& model, const compute::CpuExecutorOptions& options) {
  auto runner = compute::StepRunner::Create(model.config, model.weights, options);
  TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
  return std::move(*runner);
}

void ExpectStepsAllocateNothing(const TinyModel& model) {
  auto runner = MakeRunner(model, model.Options());
  SamplingParams sampled;
  sampled.top_p = 0.9f;
  sampled.top_k = 50;
  sampled.repetition_penalty = 1.1f;
  StepPlan plan;
  for (int32_t slot = 0; slot < 4; ++slot) {
    plan.starts.push_back(
        {.slot = slot, .sampling = SamplingOf(MakeRequest(Prompt(17), slot % 2 ? sampled : Greedy()), {})});
    plan.table_updates.push_back({slot, 0, 8, static_cast<int32_t>(plan.table_blocks.size())});
    for (int32_t b = 0; b < 8; ++b) plan.table_blocks.push_back(slot * 8 + b);
    StepItem item;
    item.slot = slot;
    item.count = 17;
    item.logit_rows = 1;
    item.sample = true;
    item.token_offset = slot * 17;
    plan.items.push_back(item);
    const auto prompt = Prompt(17);
    plan.tokens.insert(plan.tokens.end(), prompt.begin(), prompt.end());
  }
  StepResult result;
  runner->Run(plan, &result);
  ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  plan.starts.clear();
  plan.table_updates.clear();
  plan.table_blocks.clear();
  const int64_t before = AllocationCount();
  ASSERT_GT(before, 0);
  for (int32_t n = 0; n < 20; ++n) {
    for (size_t i = 0; i < plan.items.size(); ++i) {
      StepItem& item = plan.items[i];
      item.first_position = 17 + n;
      item.count = 1;
      item.token_offset = static_cast<int32_t>(i);
      plan.tokens[i] = result.tokens[i];
    }
    runner->Run(plan, &result);
    ASSERT_EQ(result.tokens.size(), 4u);
  }
  EXPECT_EQ(AllocationCount() - before, 0);
}

TEST(CpuExecutor, StepsAllocateNothing) {
  if (AllocationCount() < 0) GTEST_SKIP() << "the sanitizer owns operator new";
  ExpectStepsAllocateNothing(LoadTiny("gguf-q4_1/model.gguf"));
}

TEST(CpuExecutor, StepsOfMixturesAllocateNothing) {
  if (AllocationCount() < 0) GTEST_SKIP() << "the sanitizer owns operator new";
  ExpectStepsAllocateNothing(LoadTiny("qwen2-moe", compute::NumericsOptions{.quantization = "q8_0"}));
}

TEST(CpuExecutor, LogitsThatAreNotFiniteEndThatItemAlone) {
  TinyModel model = LoadTiny("llama-mha", "float32");
  const compute::MatrixView& e = model.weights.embedding;
  ASSERT_EQ(e.dtype, compute::DType::kF32);
  ASSERT_NE(e.data, model.weights.lm_head.data);
  std::vector<float> poisoned(static_cast<const float*>(e.data), static_cast<const float*>(e.data) + e.rows * e.cols);
  poisoned[static_cast<size_t>(5 * e.cols)] = std::numeric_limits<float>::quiet_NaN();  // token 5
  auto healthy_runner = MakeRunner(model, model.Options());
  StepDriver healthy(*healthy_runner, 128, 16);
  model.weights.embedding.data = poisoned.data();
  auto runner = MakeRunner(model, model.Options());
  StepDriver driver(*runner, 128, 16);
  const int32_t a = driver.Add(MakeRequest({5}, Greedy()));
  const int32_t b = driver.Add(MakeRequest({6, 7}, Greedy()));
  const StepResult result = driver.Step({{a, 1}, {b, 2}});
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.items[0].status, ItemStatus::kBadLogits);
  EXPECT_EQ(result.items[0].num_tokens, 0);
  const int32_t h = healthy.Add(MakeRequest({6, 7}, Greedy()));
  healthy.Generate(h, 1);
  EXPECT_EQ(driver.at(b).tokens, healthy.at(h).tokens);
}

// log(softmax(logits))[token], in double.
double NaiveLogprob(const std::vector<float>& logits, TokenId token) {
  double sum = 0.0;
  const double max = *std::max_element(logits.begin(), logits.end());
  for (const float l : logits) sum += std::exp(l - max);
  return logits[static_cast<size_t>(token)] - max - std::log(sum);
}

TEST(CpuExecutor, LogprobsAreThoseOfTheRawLogits) {
  const TinyModel model = LoadTiny("llama-gqa");
  auto runner = MakeRunner(model, model.Options());
  StepDriver driver(*runner, 128, 16, true);
  SamplingParams p = Greedy();
  p.logprobs = 3;
  p.logit_bias = {{42, 100.0f}};  // chosen, though far from the best
  Request request = MakeRequest(Prompt(12), p);
  request.prompt_logprobs = true;
  const int32_t s = driver.Add(request);
  const StepResult first = driver.Step({{s, 5}}, true);
  const StepResult second = driver.Step({{s, 7}}, true);
  ASSERT_EQ(first.prompt_logprobs.size(), 1u);
  ASSERT_EQ(first.prompt_logprobs[0].per_token.size(), 5u);
  ASSERT_EQ(second.prompt_logprobs.size(), 1u);
  EXPECT_EQ(second.prompt_logprobs[0].per_token.size(), 6u);  // the prompt's last row has none
  EXPECT_TRUE(first.logprobs.empty());
  for (int32_t r = 0; r < 5; ++r) {
    const auto& entry = first.prompt_logprobs[0].per_token[static_cast<size_t>(r)];
    ASSERT_EQ(entry.size(), 4u);
    EXPECT_EQ(entry[0].token, (*request.prompt)[static_cast<size_t>(r) + 1]);
    EXPECT_NEAR(entry[0].logprob, NaiveLogprob(driver.at(s).logits[r], entry[0].token), 1e-5);
  }
  ASSERT_EQ(second.tokens, std::vector<TokenId>{42});
  ASSERT_EQ(second.logprobs.size(), 1u);
  const auto& entry = second.logprobs[0].per_token[0];
  ASSERT_EQ(entry.size(), 4u);
  std::vector<float> raw = driver.at(s).logits[11];
  EXPECT_EQ(entry[0].token, 42);
  EXPECT_NEAR(entry[0].logprob, NaiveLogprob(raw, 42), 1e-5);
  for (size_t k = 1; k < 4; ++k) {
    const auto best = static_cast<TokenId>(std::max_element(raw.begin(), raw.end()) - raw.begin());
    EXPECT_EQ(entry[k].token, best);
    raw[static_cast<size_t>(best)] = -1e30f;
  }
}

TEST(CpuExecutor, MemoryThatTheSystemRefusesIsAStatus) {
  const TinyModel model = LoadTiny("llama-gqa");
  compute::CpuExecutorOptions options = model.Options();
  options.num_blocks = int64_t{1} << 38;
  const auto executor = compute::MakeCpuExecutor(model.config, model.weights, options);
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.status().code(), StatusCode::kResourceExhausted) << executor.status().ToString();
  EXPECT_EQ(executor.status().param(), "kv-cache-memory");
  options.num_blocks = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_EQ(compute::MakeCpuExecutor(model.config, model.weights, options).status().code(),
            StatusCode::kInvalidArgument);
  options = model.Options();
  options.max_slots = 0;
  EXPECT_NE(compute::MakeCpuExecutor(model.config, model.weights, options).status().message().find("max_slots"),
            std::string::npos);
}

TEST(CpuExecutor, ZeroOptionsAreRefusedByName) {
  const TinyModel model = LoadTiny("llama-gqa");
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
    compute::CpuExecutorOptions o = model.Options();
    change(o);
    const Status status = compute::StepRunner::Create(model.config, model.weights, o).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(status.message(), std::string(name) + " = 0, but at least 1 is needed");
  }
  compute::CpuWeights fewer = model.weights;
  fewer.layers.pop_back();
  EXPECT_EQ(compute::StepRunner::Create(model.config, fewer, model.Options()).status().code(),
            StatusCode::kInvalidArgument);
}

// A chained item before any sampled token computes token 0, not the last token of the slot's previous sequence.
TEST(CpuExecutor, AStartForgetsItsSlotsLastToken) {
  const TinyModel model = LoadTiny("llama-gqa");
  auto runner = MakeRunner(model, model.Options());
  std::vector<float> row;
  runner->set_logits_observer(
      [&](int32_t, int32_t, std::span<const float> logits) { row.assign(logits.begin(), logits.end()); });
  const auto first_row = [&](bool chained, bool sample) {
    StepPlan plan;
    plan.items.push_back({0, 0, 1, 1, sample, chained ? InputSource::kChained : InputSource::kHost});
    plan.starts.push_back({.slot = 0, .sampling = SamplingOf(MakeRequest({1, 2}, Greedy()), {})});
    plan.tokens = {0};
    StepResult result;
    runner->Run(plan, &result);
    EXPECT_TRUE(result.status.ok()) << result.status.ToString();
    return sample ? std::vector<float>{static_cast<float>(result.tokens.at(0))} : row;
  };
  ASSERT_NE(first_row(false, true), std::vector<float>{0.0f}) << "the test needs another token to be remembered";
  const std::vector<float> chained = first_row(true, false);
  EXPECT_EQ(chained, first_row(false, false));
}

TEST(FaultyExecutor, FailsExactlyTheConfiguredSteps) {
  const TinyModel model = LoadTiny("llama-gqa");
  auto inner = compute::MakeCpuExecutor(model.config, model.weights, model.Options());
  ASSERT_TRUE(inner.ok());
  FaultyExecutor executor(std::move(*inner),
                          {{1, InjectedFault::Kind::kStep, 0}, {2, InjectedFault::Kind::kBadLogits, 0}});
  ResultWaiter waiter(executor);
  StepDriver driver(
      [&](const StepPlan& plan, StepResult* result) {
        executor.Submit(plan);
        *result = waiter.Next();
      },
      128, 16);
  const int32_t s = driver.Add(MakeRequest(Prompt(4), Greedy()));
  EXPECT_EQ(driver.Step({{s, 4}}).items[0].num_tokens, 1);
  const StepResult failed = driver.Step({{s, 1}});
  EXPECT_EQ(failed.status.code(), StatusCode::kInternal);
  EXPECT_EQ(failed.step, 1);
  const StepResult bad = driver.Step({{s, 1}});
  ASSERT_TRUE(bad.status.ok());
  EXPECT_EQ(bad.items[0].status, ItemStatus::kBadLogits);
  const int32_t next = driver.Add(MakeRequest(Prompt(3), Greedy()));
  EXPECT_EQ(driver.Step({{next, 3}}).items[0].num_tokens, 1);
}

}  // namespace
}  // namespace tactus::test
