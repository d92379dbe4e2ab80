// A plan on the real scheduler, KV cache and step loop: the sharing of its order, and the evenness of its steps.
#include <gtest/gtest.h>

#include <cmath>

#include "core/loop/harness.h"
#include "offline/plan/jobs.h"
#include "offline/plan/plan.h"
#include "offline/plan/start_order.h"

namespace tactus {
namespace {

using offline::Plan;
using offline::PlanOrder;
using offline::PrefixTree;
using testing::Harness;
using testing::HarnessConfig;
using testing::Job;

constexpr int32_t kBlock = 4;

// Forty tasks of thirty short questions below a prompt of 40 tokens each, and 200 requests with long answers, mixed.
Job MixedJob() {
  Rng rng(5);
  Job job;
  const auto add = [&](TokenId system, int32_t system_tokens, int32_t own_tokens, int32_t output) {
    testing::JobRequest r;
    r.prompt.assign(static_cast<size_t>(system_tokens), system);
    for (int32_t i = 0; i < own_tokens; ++i) r.prompt.push_back(static_cast<TokenId>(rng.UniformInt(0, 63)));
    r.traits = {.max_output_tokens = output, .output_is_known = true};
    job.push_back(std::move(r));
  };
  for (int32_t i = 0; i < 1200; ++i) add(10 + i % 40, 40, 8, 4);
  for (int32_t i = 0; i < 200; ++i) add(5, 8, 4, static_cast<int32_t>(rng.UniformInt(20, 110)));
  for (size_t i = job.size(); i > 1; --i) {
    std::swap(job[i - 1], job[static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(i) - 1))]);
  }
  return job;
}

struct Figures {
  int64_t shared_tokens = 0;
  double uneven = 0;  // deviation / mean of the prompt tokens in ten steps, without the first and last tenth
  size_t steps = 0;
  int64_t preemptions = 0;
};

// Steps of 48 tokens: the prompts determine their number, and delay long answers as much as other answers do.
Figures RunJob(const Job& job, const char* name, PlanOrder order, const char* admission = "max-length",
               int64_t token_budget = 48) {
  HarnessConfig config;
  config.scheduler = {.preset = "sarathi-serve", .order = name, .admission = admission};
  config.scheduler.limits.token_budget = token_budget;
  config.num_blocks = 400;
  config.block_size = kBlock;
  config.max_model_len = 128;
  config.max_num_seqs = 64;
  config.max_queue = 1500;
  config.check_every_pass = false;
  Harness h(config);
  const PrefixTree tree = PrefixTree::Build(testing::SetOf(job, kBlock));
  std::vector<int32_t> outputs;
  for (const auto& r : job) outputs.push_back(r.traits.max_output_tokens);
  const Plan plan = Plan::Make(tree, testing::Llama8bOnA100(), outputs, {.order = order});
  std::vector<PlannedPlace> place_of(job.size());
  int32_t started = 0;
  for (const int32_t position : offline::StartOrder(plan)) {
    place_of[static_cast<size_t>(plan.RequestAt(position))] = {started++, plan.KvTokensAt(position)};
  }
  for (size_t i = 0; i < job.size(); ++i) {
    Request r = testing::MakeRequest(job[i].prompt, outputs[i]);
    r.stop.ignore_eos = true;
    r.planned = place_of[i];
    h.MustSubmit(std::move(r));
  }
  EXPECT_EQ(h.Run(), "");
  for (const RequestHandle handle : h.handles()) EXPECT_TRUE(h.outputs().at(handle).done) << name;

  Figures run{.shared_tokens = h.loop().Stats().prefix_hit_tokens, .preemptions = h.loop().Stats().preemptions};
  constexpr size_t kWindow = 10;
  const auto& records = h.records();
  double sum = 0, squares = 0;
  int windows = 0;
  for (size_t i = records.size() / 10; i + kWindow <= records.size() * 9 / 10; i += kWindow) {
    double tokens = 0;
    for (size_t k = i; k < i + kWindow; ++k) tokens += records[k].prefill_tokens;
    sum += tokens;
    squares += tokens * tokens;
    ++windows;
  }
  const double mean = sum / windows;
  run.steps = records.size();
  run.uneven = std::sqrt(squares / windows - mean * mean) / mean;
  return run;
}

TEST(PlannedRun, BlendSharesLikeDepthFirstAndRunsEvenly) {
  const Job job = MixedJob();
  const Figures dfs = RunJob(job, "dfs", PlanOrder::kDfs), random = RunJob(job, "random", PlanOrder::kRandom),
                balance = RunJob(job, "balance", PlanOrder::kBalance), blend = RunJob(job, "blend", PlanOrder::kBlend);
  EXPECT_GT(static_cast<double>(blend.shared_tokens), 0.97 * static_cast<double>(dfs.shared_tokens));
  EXPECT_LT(random.shared_tokens, blend.shared_tokens / 2);
  EXPECT_LT(balance.shared_tokens, blend.shared_tokens / 2);
  EXPECT_LT(blend.uneven, dfs.uneven / 2);
  EXPECT_LT(blend.steps, dfs.steps);
}

// Sequences of all ages hold the mean length on average: more fit than by their maximal lengths, and fewer are
// preempted than if only prompts are counted.
TEST(PlannedRun, ReservingTheMeanFillsTheMemoryWithFewPreemptions) {
  const Job job = MixedJob();
  const Figures mean = RunJob(job, "blend", PlanOrder::kBlend, "planned-mean", 256),
                longest = RunJob(job, "blend", PlanOrder::kBlend, "max-length", 256),
                prompt = RunJob(job, "blend", PlanOrder::kBlend, "prompt-fits", 256);
  EXPECT_LT(mean.steps, longest.steps);
  EXPECT_LT(mean.preemptions, prompt.preemptions * 2 / 3);
  EXPECT_EQ(longest.preemptions, 0);
}

}  // namespace
}  // namespace tactus
