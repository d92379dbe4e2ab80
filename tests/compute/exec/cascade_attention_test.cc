// Decodes of a step that share a prefix: it is read once for all of them, and no bit of any sequence changes.
#include <gtest/gtest.h>

#include <cstring>

#include "base/rng.h"
#include "compute/exec/allocation_count.h"
#include "compute/exec/tiny_model.h"
#include "compute/weights/model_shapes.h"

namespace tactus::test {
namespace {

constexpr int32_t kPrefix = 144, kMore = 96, kDecodeSteps = 6;

std::unique_ptr<compute::StepRunner> MakeRunner(const TinyModel& model, const compute::Ops* ops, int32_t threads,
                                                bool cascade) {
  compute::CpuExecutorOptions options = model.Options();
  options.ops = ops;
  options.threads = threads;
  options.max_model_len = 400;
  options.max_step_tokens = 400;
  options.cascade_attention = cascade;
  auto runner = compute::StepRunner::Create(model.config, model.weights, options);
  TACTUS_CHECK_MSG(runner.ok(), runner.status().ToString());
  return std::move(*runner);
}

// Six sequences with one prefix, two of them with a longer one, and a seventh that shares nothing.
std::vector<Request> Requests(const compute::ModelConfig& config) {
  Rng rng(3);
  auto tokens = [&](int32_t n) {
    std::vector<TokenId> out(static_cast<size_t>(n));
    for (TokenId& t : out) t = static_cast<TokenId>(rng.UniformInt(0, config.vocab_size - 1));
    return out;
  };
  auto joined = [](std::vector<TokenId> a, const std::vector<TokenId>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const std::vector<TokenId> prefix = tokens(kPrefix), longer = joined(prefix, tokens(kMore));
  std::vector<Request> requests;
  for (const int32_t own : {1, 17, 5}) requests.push_back(MakeRequest(joined(longer, tokens(own)), Greedy()));
  for (const int32_t own : {2, 30, 16}) requests.push_back(MakeRequest(joined(prefix, tokens(own)), Greedy()));
  requests.push_back(MakeRequest(tokens(90), Greedy()));
  return requests;
}

// Runs the prompts, then all decodes together while the last sequence computes its prompt in chunks.
void RunSteps(compute::StepRunner& runner, const TinyModel& model, std::vector<StepDriver::Sequence>* result) {
  const compute::CpuExecutorOptions options = model.Options();
  StepDriver driver(runner, options.num_blocks, options.block_size, true);
  const std::vector<Request> requests = Requests(model.config);
  std::vector<StepDriver::Take> decodes;
  for (int32_t s = 0; s < static_cast<int32_t>(requests.size()); ++s) {
    driver.Add(requests[static_cast<size_t>(s)]);
    if (s == 6) break;
    if (s > 0) driver.ShareBlocks(s, 0, (s < 3 ? kPrefix + kMore : kPrefix) / options.block_size);
    driver.Generate(s, 1);
    decodes.push_back({s, 1});
  }
  for (int32_t step = 0; step < kDecodeSteps; ++step) {
    std::vector<StepDriver::Take> takes = decodes;
    takes.insert(takes.begin() + step, {6, 15});
    const StepResult step_result = driver.Step(takes);
    ASSERT_TRUE(step_result.status.ok()) << step_result.status.ToString();
  }
  for (int32_t s = 0; s < 7; ++s) result->push_back(driver.at(s));
}

struct Case {
  const char* name;
  const char* model;
  compute::NumericsOptions numerics;
};
class CascadeAttention : public testing::TestWithParam<Case> {};

TEST_P(CascadeAttention, ChangesNoBitOfAStep) {
  const TinyModel model = LoadTiny(GetParam().model, GetParam().numerics);
  for (const compute::Ops* ops : compute::RunnableOps()) {
    std::vector<StepDriver::Sequence> apart;
    RunSteps(*MakeRunner(model, ops, 1, false), model, &apart);
    if (HasFatalFailure()) return;
    for (const int32_t threads : {1, 3}) {
      std::vector<StepDriver::Sequence> together;
      RunSteps(*MakeRunner(model, ops, threads, true), model, &together);
      if (HasFatalFailure()) return;
      for (size_t s = 0; s < apart.size(); ++s) {
        const std::string where =
            std::string(ops->name) + ", " + std::to_string(threads) + " threads, sequence " + std::to_string(s);
        ASSERT_EQ(together[s].status, ItemStatus::kOk) << where;
        ASSERT_EQ(together[s].tokens, apart[s].tokens) << where;
        ASSERT_EQ(together[s].logits.size(), apart[s].logits.size()) << where;
        for (const auto& [position, logits] : apart[s].logits) {
          ASSERT_EQ(std::memcmp(together[s].logits[position].data(), logits.data(), logits.size() * sizeof(float)), 0)
              << where << ": other logits at position " << position;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CascadeAttention,
                         testing::Values(Case{"bf16", "llama-gqa-bf16", {}}, Case{"f32", "llama-gqa", {}},
                                         Case{"q4_1", "gguf-q4_1/model.gguf", {}},
                                         Case{"int8_kv", "llama-gqa-bf16", {.kv_cache_dtype = "int8"}},
                                         Case{"f32_kv", "llama-gqa-bf16", {.kv_cache_dtype = "float32"}},
                                         Case{"reference", "llama-gqa", {.dtype = "float32"}},
                                         Case{"window_in_some_layers", "qwen2-window", {}},
                                         Case{"chunks_in_some_layers", "llama4", {}}),
                         [](const auto& test) { return std::string(test.param.name); });

// The bytes saved by the group of all six, as counted by the operator profile.
TEST(CascadeAttentionReads, APrefixOncePerGroup) {
  const TinyModel model = LoadTiny("llama-gqa-bf16");
  int64_t bytes[2];
  for (const bool cascade : {false, true}) {
    auto runner = MakeRunner(model, nullptr, 1, cascade);
    const compute::CpuExecutorOptions options = model.Options();
    StepDriver driver(*runner, options.num_blocks, options.block_size);
    const std::vector<Request> requests = Requests(model.config);
    std::vector<StepDriver::Take> decodes;
    for (int32_t s = 0; s < 6; ++s) {
      driver.Add(requests[static_cast<size_t>(s)]);
      if (s > 0) driver.ShareBlocks(s, 0, (s < 3 ? kPrefix + kMore : kPrefix) / options.block_size);
      driver.Generate(s, 1);
      decodes.push_back({s, 1});
    }
    compute::OperatorProfile profile(SystemClock());
    runner->set_operator_profile(&profile);
    ASSERT_TRUE(driver.Step(decodes).status.ok());
    bytes[cascade] = profile.totals(compute::DecoderOperator::kAttention).cost.bytes;
  }
  const int64_t token_bytes = 2 * test::AttentionIn(model.config).kv_heads * test::AttentionIn(model.config).head_dim *
                              2 * model.config.num_layers();
  EXPECT_EQ(bytes[0] - bytes[1], 5 * kPrefix * token_bytes);
}

// Four decodes with nine common blocks, step after step.
TEST(CascadeAttentionReads, WithoutAllocating) {
  if (AllocationCount() < 0) GTEST_SKIP() << "the sanitizer owns operator new";
  const TinyModel model = LoadTiny("gguf-q4_1/model.gguf");
  auto runner = MakeRunner(model, nullptr, 1, true);
  StepPlan plan;
  for (int32_t slot = 0; slot < 4; ++slot) {
    plan.starts.push_back({.slot = slot, .sampling = SamplingOf(MakeRequest({1}, Greedy()), {})});
    plan.table_updates.push_back({slot, 0, 10, slot * 10});
    for (int32_t b = 0; b < 10; ++b) plan.table_blocks.push_back(b < 9 ? b : 9 + slot);
    plan.items.push_back({.slot = slot, .count = 1, .logit_rows = 1, .sample = true, .token_offset = slot});
    plan.tokens.push_back(slot);
  }
  StepResult result;
  int64_t before = 0;
  for (int32_t n = 0; n < 12; ++n) {
    for (StepItem& item : plan.items) item.first_position = 144 + n;
    runner->Run(plan, &result);
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
    ASSERT_EQ(result.tokens.size(), 4u);
    plan.starts.clear();
    plan.table_updates.clear();
    plan.table_blocks.clear();
    if (n == 1) before = AllocationCount();  // the buffers have their final size
  }
  EXPECT_EQ(AllocationCount() - before, 0);
}

}  // namespace
}  // namespace tactus::test
