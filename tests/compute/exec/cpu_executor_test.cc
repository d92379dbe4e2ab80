// The CPU executor against its contract: order, chaining, results per item, faults, and steps without allocations.
#include "compute/exec/cpu_executor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>

#include "compute/exec/allocation_count.h"
#include "compute/exec/tiny_model.h"
#include "support/faulty_executor.h"
#include "time_limit.h"

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

// Waits for the wake-up alone, like the engine: a missing call fails the step after half a minute. The last call may
// come after its result was polled, so the state outlives the waiter.
class Waiter {
 public:
  explicit Waiter(Executor& executor) : executor_(executor) {
    executor.SetWakeup([state = state_] {
      std::lock_guard<std::mutex> lock(state->mutex);
      ++state->calls;
      state->ready.notify_one();
    });
  }
  StepResult Next() {
    StepResult result;
    while (!executor_.Poll(&result)) {
      std::unique_lock<std::mutex> lock(state_->mutex);
      if (!state_->ready.wait_for(lock, std::chrono::seconds(30), [this] { return state_->calls > 0; })) {
        ADD_FAILURE() << "no wake-up within 30 s, and no result";
        result.status = Internal("no wake-up");
        return result;
      }
      --state_->calls;
    }
    return result;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable ready;
    int64_t calls = 0;
  };
  Executor& executor_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// A prompt chunk of slot 0 and then chained decodes, all submitted before the first is polled.
TEST(CpuExecutor, ChainedStepsInFlightSampleTheHostsTokens) {
  const TinyModel model = LoadTiny("llama-gqa");
  constexpr int32_t kSteps = 6;
  SamplingParams sampled;
  sampled.temperature = 1.5f;
  sampled.seed = 11;
  sampled.frequency_penalty = 1.0f;
  const Request request = MakeRequest(Prompt(20), sampled);
  auto runner = MakeRunner(model, model.Options());
  StepDriver driver(*runner, 128, 16);
  const int32_t s = driver.Add(request);
  driver.Generate(s, kSteps);

  compute::CpuExecutorOptions options = model.Options();
  options.max_in_flight = kSteps;
  options.threads = 2;
  auto executor = compute::MakeCpuExecutor(model.config, model.weights, options);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  EXPECT_TRUE((*executor)->traits().can_chain);
  EXPECT_EQ((*executor)->traits().max_in_flight, kSteps);
  Waiter waiter(**executor);
  std::vector<StepPlan> plans(kSteps);
  for (int32_t n = 0; n < kSteps; ++n) {
    StepPlan& plan = plans[static_cast<size_t>(n)];
    plan.step = n;
    StepItem item;
    item.slot = 0;
    item.sample = true;
    item.logit_rows = 1;
    if (n == 0) {
      plan.starts.push_back({.slot = 0, .sampling = SamplingOf(request, {})});
      plan.table_blocks = {5, 2};
      plan.table_updates.push_back({0, 0, 2, 0});
      plan.tokens = *request.prompt;
      item.count = 20;
    } else {
      item.input = InputSource::kChained;
      item.first_position = 19 + n;
      item.count = 1;
    }
    plan.items.push_back(item);
    (*executor)->Submit(plan);
  }
  TimeNs last_ns = 0;
  for (int32_t n = 0; n < kSteps; ++n) {
    const StepResult result = waiter.Next();
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
    EXPECT_EQ(result.step, n);
    ASSERT_EQ(result.items.size(), 1u);
    EXPECT_EQ(result.items[0].accepted, n == 0 ? 20 : 1);
    ASSERT_EQ(result.items[0].num_tokens, 1);
    EXPECT_EQ(result.tokens[0], driver.at(s).output()[static_cast<size_t>(n)]) << n;
    EXPECT_GE(result.start_ns, last_ns);
    EXPECT_GE(result.end_ns, result.start_ns);
    last_ns = result.end_ns;
  }
  StepResult none;
  EXPECT_FALSE((*executor)->Poll(&none));
}

// The contract's order of copies: a block is swapped out and overwritten in the same step, and its saved content later
// returns into other blocks; one of the four blocks is partial. Logits of every later position equal those of a run
// without swap.
TEST(CpuExecutor, SwappedSequenceHasTheLogitsOfAnUnswappedOne) {
  const TinyModel model = LoadTiny("llama-gqa");
  compute::CpuExecutorOptions options = model.Options();
  options.num_blocks = 16;
  options.swap_blocks = 5;
  const Request request = MakeRequest(Prompt(50), Greedy());
  auto plain = MakeRunner(model, model.Options());
  StepDriver reference(*plain, 128, 16, true);
  const int32_t r = reference.Add(request);
  reference.Generate(r, 8);

  auto runner = MakeRunner(model, options);
  std::map<int32_t, std::vector<float>> logits;
  runner->set_logits_observer([&](int32_t item, int32_t position, std::span<const float> row) {
    if (item == 0) logits[position].assign(row.begin(), row.end());
  });
  std::vector<TokenId> tokens = *request.prompt;
  StepId step = 0;
  const auto run = [&](StepPlan plan, SlotId slot, int32_t first, int32_t count, const std::vector<TokenId>& ids) {
    plan.step = step++;
    StepItem item;
    item.slot = slot;
    item.first_position = first;
    item.count = count;
    item.sample = true;
    item.logit_rows = 1;
    plan.tokens.assign(ids.begin() + first, ids.begin() + first + count);
    plan.items.push_back(item);
    StepResult result;
    runner->Run(plan, &result);
    TACTUS_CHECK_MSG(result.status.ok(), result.status.ToString());
    return result.tokens.at(0);
  };
  const auto shared = std::make_shared<Request>(request);
  StepPlan plan;
  plan.starts.push_back({.slot = 0, .sampling = SamplingOf(*shared, {})});
  plan.table_blocks = {3, 1, 4, 2};
  plan.table_updates.push_back({0, 0, 4, 0});
  tokens.push_back(run(plan, 0, 0, 50, tokens));
  for (int i = 0; i < 3; ++i) tokens.push_back(run({}, 0, 50 + i, 1, tokens));

  // 53 positions are swapped out; another sequence fills the same four blocks in the same step.
  const Request other = MakeRequest(Prompt(60, 5), Greedy());
  StepPlan out;
  out.swap_outs = {{3, 4, 16}, {1, 0, 16}, {4, 2, 16}, {2, 3, 5}};
  out.starts.push_back({.slot = 1, .sampling = SamplingOf(other, {})});
  out.table_blocks = {1, 2, 3, 4};
  out.table_updates.push_back({1, 0, 4, 0});
  auto saved = logits;
  run(out, 1, 0, 60, *other.prompt);
  logits = saved;

  StepPlan in;
  in.swap_ins = {{9, 4, 16}, {8, 0, 16}, {11, 2, 16}, {10, 3, 5}};
  in.starts.push_back({.slot = 0, .sampling = SamplingOf(*shared, std::span(tokens).subspan(50))});
  in.table_blocks = {9, 8, 11, 10};
  in.table_updates.push_back({0, 0, 4, 0});
  tokens.push_back(run(in, 0, 53, 1, tokens));
  for (int i = 0; i < 3; ++i) tokens.push_back(run({}, 0, 54 + i, 1, tokens));
  EXPECT_EQ(tokens, reference.at(r).tokens);
  EXPECT_EQ(logits, reference.at(r).logits);

  for (const SwapCopy bad :
       {SwapCopy{16, 0, 1}, SwapCopy{0, 5, 1}, SwapCopy{0, -1, 1}, SwapCopy{0, 0, 17}, SwapCopy{0, 0, 0}}) {
    for (const bool outwards : {false, true}) {
      StepPlan refused;
      (outwards ? refused.swap_outs : refused.swap_ins).push_back(bad);
      StepResult result;
      runner->Run(refused, &result);
      EXPECT_EQ(result.status.code(), StatusCode::kInternal);
    }
  }
}

TEST(CpuExecutor, CanBeDestroyedWithStepsOutstanding) {
  const TimeLimit limit("an executor with steps outstanding does not end");
  const TinyModel model = LoadTiny("llama-gqa");
  compute::CpuExecutorOptions options = model.Options();
  options.max_in_flight = 4;
  std::vector<StepPlan> plans(4);
  auto executor = compute::MakeCpuExecutor(model.config, model.weights, options);
  ASSERT_TRUE(executor.ok());
  for (StepPlan& plan : plans) {
    plan.tokens = Prompt(100);
    plan.table_blocks = {0, 1, 2, 3, 4, 5, 6};
    plan.table_updates.push_back({0, 0, 7, 0});
    StepItem item;
    item.slot = 0;
    item.count = 100;
    plan.items.push_back(item);
    (*executor)->Submit(plan);
  }
}

TEST(CpuExecutor, StepsAllocateNothing) {
  if (AllocationCount() < 0) GTEST_SKIP() << "the sanitizer owns operator new";
  const TinyModel model = LoadTiny("gguf-q4_1/model.gguf");
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

TEST(CpuExecutor, RefusesPlansThatReachOutsideItsMemory) {
  const TinyModel model = LoadTiny("llama-gqa");
  auto runner = MakeRunner(model, model.Options());
  StepDriver driver(*runner, 128, 16);
  const int32_t s = driver.Add(MakeRequest(Prompt(20), Greedy()));
  driver.Generate(s, 2);
  StepPlan good;
  good.step = 9;
  StepItem item;
  item.slot = 0;
  item.first_position = 3;
  item.count = 1;
  item.logit_rows = 1;
  good.items.push_back(item);
  good.tokens = {1};
  const std::vector<std::pair<const char*, std::function<void(StepPlan&)>>> faults = {
      {"slot", [](StepPlan& p) { p.items[0].slot = 8; }},
      {"slot", [](StepPlan& p) { p.starts.push_back({.slot = -1, .choice = 0}); }},
      {"item", [](StepPlan& p) { p.items[0].first_position = 160; }},
      {"item", [](StepPlan& p) { p.items[0].count = 0; }},
      {"input", [](StepPlan& p) { p.items[0].token_offset = 1; }},
      {"logit rows", [](StepPlan& p) { p.items[0].logit_rows = 2; }},
      {"logit rows", [](StepPlan& p) { p.items[0].sample = true, p.items[0].logit_rows = 0; }},
      {"chained", [](StepPlan& p) { p.items[0].input = InputSource::kChained, p.items[0].count = 2; }},
      {"items", [](StepPlan& p) { p.items.resize(9, p.items[0]); }},
      {"tokens",
       [](StepPlan& p) {
         p.items[0].first_position = 0, p.items[0].count = 150, p.tokens.resize(150), p.items.resize(2, p.items[0]);
       }},
      {"block", [](StepPlan& p) { p.table_blocks = {128}; }},
      {"table",
       [](StepPlan& p) {
         p.table_blocks = {1};
         p.table_updates.push_back({0, 10, 1, 0});
       }},
      {"table_blocks", [](StepPlan& p) { p.table_updates.push_back({0, 0, 1, 0}); }},
      {"copy", [](StepPlan& p) { p.copies.push_back({0, 128, 1}); }},
      {"copied", [](StepPlan& p) { p.copies.push_back({0, 1, 17}); }},
  };
  for (const auto& [what, spoil] : faults) {
    StepPlan plan = good;
    spoil(plan);
    StepResult result;
    runner->Run(plan, &result);
    EXPECT_EQ(result.status.code(), StatusCode::kInternal) << what;
    EXPECT_NE(result.status.message().find(what), std::string::npos) << result.status.message();
    EXPECT_EQ(result.step, 9);
  }
  // No part of the refused plans was applied.
  driver.Generate(s, 6);
  auto fresh = MakeRunner(model, model.Options());
  StepDriver expected(*fresh, 128, 16);
  const int32_t e = expected.Add(MakeRequest(Prompt(20), Greedy()));
  expected.Generate(e, 6);
  EXPECT_EQ(driver.at(s).tokens, expected.at(e).tokens);
}

TEST(CpuExecutor, AnImpossibleTokenFailsItsItemAlone) {
  const TinyModel model = LoadTiny("llama-gqa");
  auto runner = MakeRunner(model, model.Options());
  StepDriver driver(*runner, 128, 16);
  std::vector<TokenId> bad = Prompt(10);
  bad[4] = static_cast<TokenId>(model.config.vocab_size);
  const int32_t a = driver.Add(MakeRequest(bad, Greedy()));
  const int32_t b = driver.Add(MakeRequest(Prompt(10), Greedy()));
  const StepResult result = driver.Step({{a, 10}, {b, 10}});
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.items[0].status, ItemStatus::kFailed);
  EXPECT_EQ(result.items[0].num_tokens, 0);
  EXPECT_EQ(result.items[1].status, ItemStatus::kOk);
  EXPECT_EQ(result.items[1].num_tokens, 1);
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

// Two prompts with prompt_logprobs beside one without, in one step: each row has the logprob for its next token.
TEST(CpuExecutor, LogprobsOfSeveralItemsAreNotMixed) {
  const TinyModel model = LoadTiny("llama-gqa");
  auto runner = MakeRunner(model, model.Options());
  StepDriver driver(*runner, 128, 16, true);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 3; ++i) {
    SamplingParams p = Greedy();
    p.logprobs = i == 1 ? -1 : i;
    Request request = MakeRequest(Prompt(6 + i, 3 + 7 * i), p);
    request.prompt_logprobs = i != 1;
    ids.push_back(driver.Add(request));
  }
  const StepResult r = driver.Step({{ids[0], 6}, {ids[1], 7}, {ids[2], 8}}, true);
  ASSERT_TRUE(r.status.ok()) << r.status.ToString();
  ASSERT_EQ(r.prompt_logprobs.size(), 2u);
  ASSERT_EQ(r.logprobs.size(), 2u);
  for (size_t k = 0; k < 2; ++k) {
    const size_t i = 2 * k;  // index of the item
    const auto& of = driver.at(ids[i]);
    EXPECT_EQ(r.prompt_logprobs[k].item, static_cast<int32_t>(i));
    ASSERT_EQ(r.prompt_logprobs[k].per_token.size(), 5 + i);
    for (size_t row = 0; row < 5 + i; ++row) {
      const auto& entry = r.prompt_logprobs[k].per_token[row];
      ASSERT_FALSE(entry.empty()) << "item " << i << " row " << row;
      EXPECT_EQ(entry[0].token, (*of.request->prompt)[row + 1]) << "item " << i << " row " << row;
      EXPECT_NEAR(entry[0].logprob, NaiveLogprob(of.logits.at(static_cast<int32_t>(row)), entry[0].token), 1e-5);
    }
    EXPECT_EQ(r.logprobs[k].item, static_cast<int32_t>(i));
    EXPECT_EQ(r.logprobs[k].per_token.at(0).at(0).token, r.tokens.at(i));
  }
}

// A fork shares full blocks and gets a copy of the partial one before its items run.
TEST(CpuExecutor, CopiesOfPartialBlocksKeepTheirTokens) {
  const TinyModel model = LoadTiny("llama-gqa-bf16");
  auto runner = MakeRunner(model, model.Options());
  StepDriver driver(*runner, 64, 16);  // blocks 64 and up stay free for the fork
  const int32_t s = driver.Add(MakeRequest(Prompt(25), Greedy()));
  driver.Generate(s, 1);
  const TokenId first = driver.at(s).output()[0];
  StepPlan plan;
  plan.starts.push_back({.slot = 7, .sampling = SamplingOf(*driver.at(s).request, {})});
  plan.table_blocks = {driver.at(s).table[0], 100};
  plan.table_updates.push_back({7, 0, 2, 0});
  plan.copies.push_back({driver.at(s).table[1], 100, 8});  // positions 16..23; the fork computes 24
  StepItem item;
  item.slot = 7;
  item.first_position = 24;
  item.count = 1;
  item.logit_rows = 1;
  item.sample = true;
  plan.items.push_back(item);
  plan.tokens = {(*driver.at(s).request->prompt)[24]};
  StepResult result;
  runner->Run(plan, &result);
  ASSERT_TRUE(result.status.ok()) << result.status.ToString();
  EXPECT_EQ(result.tokens, std::vector<TokenId>{first});
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

TEST(FaultyExecutor, FailsExactlyTheConfiguredSteps) {
  const TinyModel model = LoadTiny("llama-gqa");
  auto inner = compute::MakeCpuExecutor(model.config, model.weights, model.Options());
  ASSERT_TRUE(inner.ok());
  FaultyExecutor executor(std::move(*inner),
                          {{1, InjectedFault::Kind::kStep, 0}, {2, InjectedFault::Kind::kBadLogits, 0}});
  Waiter waiter(executor);
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
