// The load generator: what it sends, and what a missing server means. Whole runs against a real server are in
// tests/e2e.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "cli/load_generator.h"

namespace tactus::cli {
namespace {

using Json = nlohmann::json;

std::vector<int64_t> PromptOf(const LoadOptions& o, const WorkloadRequest& r, int64_t index) {
  return Json::parse(RequestBody(o, r, index))["prompt"].get<std::vector<int64_t>>();
}

TEST(LoadGenerator, PromptsHaveExactLengthsAndShareWhatTheWorkloadShares) {
  LoadOptions o;
  o.vocab_size = 1000;
  WorkloadRequest r;
  r.prompt_tokens = 20;
  r.prefix_id = 3;
  r.shared_tokens = 12;
  const auto a = PromptOf(o, r, 0), b = PromptOf(o, r, 1);
  ASSERT_EQ(a.size(), 20u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 12, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 12, a.end(), b.begin() + 12));
  for (int64_t id : a) {
    EXPECT_GE(id, 100);
    EXPECT_LT(id, 1000);
  }
  EXPECT_EQ(a, PromptOf(o, r, 0));
  o.seed = 1;
  EXPECT_NE(a, PromptOf(o, r, 0));
}

TEST(LoadGenerator, TurnsRepeatTheConversationAndTraceBlocksRepeatById) {
  LoadOptions o;
  WorkloadRequest first, second;
  first.conversation = second.conversation = 5;
  first.prompt_tokens = 10;
  second.prompt_tokens = 25;
  const auto a = PromptOf(o, first, 0), b = PromptOf(o, second, 1);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));

  WorkloadRequest x, y;
  x.prompt_tokens = y.prompt_tokens = 1100;
  x.block_ids = {7, 8, 9};
  y.block_ids = {7, 10, 11};
  const auto p = PromptOf(o, x, 0), q = PromptOf(o, y, 1);
  EXPECT_TRUE(std::equal(p.begin(), p.begin() + 512, q.begin()));
  EXPECT_FALSE(std::equal(p.begin() + 512, p.begin() + 1024, q.begin() + 512));
}

TEST(LoadGenerator, BodiesAskForExactlyWhatTheOptionsSay) {
  LoadOptions o;
  o.model = "m";
  o.send_slo = true;
  o.slo.ttft_ns = 500 * kMillisecond;
  WorkloadRequest r;
  r.prompt_tokens = 3;
  r.output_tokens = 7;
  const Json ids = Json::parse(RequestBody(o, r, 0));
  EXPECT_EQ(ids["max_tokens"], 7);
  EXPECT_EQ(ids["ignore_eos"], true);
  EXPECT_EQ(ids["stream"], true);
  EXPECT_EQ(ids["slo"]["ttft_ms"], 500.0);
  o.endpoint = "chat";
  const Json chat = Json::parse(RequestBody(o, r, 0));
  EXPECT_EQ(chat["messages"][0]["role"], "user");
  EXPECT_FALSE(chat.contains("prompt"));
}

TEST(LoadGenerator, NoServerIsAFailureOfEveryRequestNotAHang) {
  LoadOptions o;
  o.url = fmt::format("http://127.0.0.1:{}", ClosedPort().number());
  o.concurrency = 2;
  std::vector<WorkloadRequest> workload(3);
  for (auto& r : workload) r.prompt_tokens = r.output_tokens = 1;
  auto result = RunLoad(o, workload, SystemClock(), [](const LoadProgress&) { return true; });
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->records.size(), 3u);
  for (const auto& r : result->records) EXPECT_EQ(r.outcome, RequestRecord::Outcome::kFailed);
  ASSERT_EQ(result->failures.size(), 1u);
  EXPECT_EQ(result->failures.begin()->second, 3);
  EXPECT_TRUE(result->rejections.empty());
}

TEST(LoadGenerator, ABadUrlIsRefused) {
  LoadOptions o;
  o.url = "ftp://x";
  EXPECT_FALSE(RunLoad(o, {}, SystemClock(), [](const LoadProgress&) { return true; }).ok());
}

}  // namespace
}  // namespace tactus::cli
