// Compares our engine with the rules and logs of the Vidur simulator. Without data: thousands of generated steps for
// many parameters, compared with a second implementation of the rules. With TACTUS_DATA: Vidur's logs, every column of
// every row.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/rng.h"
#include "support/plan_digest.h"
#include "vidur/vidur_engine.h"
#include "vidur/vidur_replay.h"

namespace tactus::vidur {
namespace {

constexpr double kMicrosecondS = 1e-6;

std::vector<TraceRequest> MakeRequests(uint64_t seed, int32_t count, double rate, int32_t max_prompt,
                                       int32_t max_output) {
  Rng rng(seed, 5);
  std::vector<TraceRequest> requests;
  double now = 0;
  for (int32_t i = 0; i < count; ++i) {
    now += rng.Exponential(1 / rate);
    requests.push_back({now, static_cast<int32_t>(rng.UniformInt(1, max_prompt)),
                        static_cast<int32_t>(rng.UniformInt(1, max_output))});
  }
  return requests;
}

void ExpectSame(const Log& expected, const Result<EngineRun>& ours, const std::string& what) {
  ASSERT_TRUE(ours.ok()) << what << ": " << ours.status().ToString();
  RecordPlans(ours->plan_hash);
  const Difference d = Compare(expected, ours->run);
  EXPECT_TRUE(d.first.empty()) << what << ": " << d.first;
  EXPECT_LE(d.max_time_error_s, kMicrosecondS) << what;
  EXPECT_GT(d.rows_compared, 0) << what;
}

// Parameters far from the logs': tight memory, budgets below the number of decodes, tiny batches, other block sizes.
TEST(Vidur, EngineFollowsTheRulesForManyParameters) {
  const Tables tables = Tables::Synthetic(1);
  int64_t preempted = 0, whole = 0, left = 0;
  Rng rng(2, 9);
  for (int32_t i = 0; i < 120; ++i) {
    Rules rules;
    rules.policy = static_cast<Policy>(i % 3);
    rules.chunk = std::vector<int32_t>{16, 32, 64, 128, 512}[static_cast<size_t>(rng.UniformInt(0, 4))];
    rules.batch_cap = std::vector<int32_t>{4, 24, 64, 128}[static_cast<size_t>(rng.UniformInt(0, 3))];
    rules.block_size = std::vector<int32_t>{8, 16, 32}[static_cast<size_t>(rng.UniformInt(0, 2))];
    rules.watermark = std::vector<double>{0.01, 0.05, 0.2}[static_cast<size_t>(rng.UniformInt(0, 2))];
    rules.max_request_tokens = 768;
    rules.max_tokens_in_batch = static_cast<int32_t>(rng.UniformInt(768, 2000));
    // At least room for the longest request plus the watermark; at most for all requests.
    rules.blocks = rules.blocks_for(rules.max_request_tokens) * rng.UniformInt(2, 20);
    const auto requests = MakeRequests(static_cast<uint64_t>(i) + 10, 120, 1 + 30 * rng.Uniform(), 512, 256);
    const Log expected = ReplayRules(rules, requests, tables);
    const std::string what = "case " + std::to_string(i);
    ExpectSame(expected, RunEngine(rules, Choices::kVidur, requests, tables), what);
    for (const StepRow& row : expected.steps) preempted += static_cast<int64_t>(row.restarted.size());
    left += expected.left_scope ? 1 : 0;
    whole += expected.left_scope ? 0 : 1;
  }
  EXPECT_TRUE(tables.covered());
  EXPECT_GT(preempted, 100);  // the cases have preemptions
  EXPECT_GT(whole, 80);       // most replays run to their end
}

// With ample memory our presets equal these schedulers without an injected composition.
TEST(Vidur, StockPresetsFollowTheRulesWithAmpleMemory) {
  const Tables tables = Tables::Synthetic(3);
  const auto requests = MakeRequests(4, 300, 10, 1024, 200);
  Rules rules;
  rules.blocks = 27904;
  ExpectSame(ReplayRules(rules, requests, tables), RunEngine(rules, Choices::kStock, requests, tables),
             "sarathi-serve");
  rules.policy = Policy::kOrca;
  rules.max_request_tokens = 2048;
  ExpectSame(ReplayRules(rules, requests, tables), RunEngine(rules, Choices::kStock, requests, tables), "orca");
}

// The comparison can fail: a rule changed on one side makes a difference.
TEST(Vidur, ComparisonDetectsEveryChangedRule) {
  const Tables tables = Tables::Synthetic(5);
  const auto requests = MakeRequests(6, 200, 30, 512, 256);
  Rules rules;
  rules.blocks = 300;
  rules.max_request_tokens = 768;
  const auto differs = [&](const Rules& ours) {
    const auto run = RunEngine(ours, Choices::kVidur, requests, tables);
    return run.ok() && !Compare(ReplayRules(rules, requests, tables), run->run).first.empty();
  };
  Rules same = rules;
  EXPECT_FALSE(differs(same));
  Rules other = rules;
  other.chunk = 511;
  EXPECT_TRUE(differs(other)) << "chunk";
  other = rules;
  other.watermark = 0.02;
  EXPECT_TRUE(differs(other)) << "watermark";
  other = rules;
  other.blocks = 399;
  EXPECT_TRUE(differs(other)) << "blocks";
  // Without the rule that a decode needs a free block even when it uses none, preemptions differ.
  const auto stock = RunEngine(rules, Choices::kStock, requests, tables);
  ASSERT_TRUE(stock.ok());
  EXPECT_FALSE(Compare(ReplayRules(rules, requests, tables), stock->run).first.empty());
}

struct Logged {
  const char* name;
  Policy policy;
  int64_t blocks;
  Choices choices;
};

class VidurLogs : public testing::TestWithParam<Logged> {};

TEST_P(VidurLogs, EngineReproducesEveryColumnOfEveryRow) {
  const char* data = std::getenv("TACTUS_DATA");
  if (data == nullptr) GTEST_SKIP() << "TACTUS_DATA is not set";
  const std::string folder = std::string(data) + "/vidur";
  const Logged& p = GetParam();
  const auto requests = LoadRequests(folder + "/requests.csv");
  if (!requests.ok()) GTEST_SKIP() << requests.status().ToString();
  const auto tables = Tables::Load(folder, 48);
  ASSERT_TRUE(tables.ok()) << tables.status().ToString();
  const auto logged = LoadRun(folder + "/steps_" + p.name + ".csv.gz", folder + "/requests_" + p.name + ".csv.gz");
  ASSERT_TRUE(logged.ok()) << logged.status().ToString();
  Rules rules;
  rules.policy = p.policy;
  rules.blocks = p.blocks;
  ExpectSame(*logged, RunEngine(rules, p.choices, *requests, *tables), p.name);
  EXPECT_TRUE(tables->covered());

  // The second implementation, which replaces logs for other parameters, equals these logs bit for bit.
  const Difference replay = Compare(*logged, ReplayRules(rules, *requests, *tables));
  EXPECT_TRUE(replay.first.empty()) << replay.first;
  EXPECT_EQ(replay.max_time_error_s, 0.0);
}

INSTANTIATE_TEST_SUITE_P(Runs, VidurLogs,
                         testing::Values(Logged{"sarathi", Policy::kSarathi, 27904, Choices::kStock},
                                         Logged{"vllm", Policy::kVllm, 27904, Choices::kVidur},
                                         Logged{"orca", Policy::kOrca, 27904, Choices::kStock},
                                         Logged{"sarathi_lowmem", Policy::kSarathi, 2500, Choices::kVidur},
                                         Logged{"vllm_lowmem", Policy::kVllm, 2500, Choices::kVidur}),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace tactus::vidur
