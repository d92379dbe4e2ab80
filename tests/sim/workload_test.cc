#include "sim/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace tactus {
namespace {

std::vector<WorkloadRequest> Make(const std::string& text, const std::string& arrivals, double rate, int64_t count,
                                  uint64_t seed = 1) {
  auto spec = ParseWorkload(text);
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  auto when = ParseArrivals(arrivals, rate);
  EXPECT_TRUE(when.ok());
  auto made = MakeWorkload(*spec, *when, count, seed);
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return made.ok() ? *made : std::vector<WorkloadRequest>();
}

double Quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[static_cast<size_t>(q * static_cast<double>(v.size() - 1))];
}

TEST(Workload, NamedDistributionsHaveTheStatedQuantiles) {
  const auto requests = Make("chat", "poisson", 5, 20000);
  std::vector<double> in, out;
  for (const auto& r : requests) {
    in.push_back(static_cast<double>(r.prompt_tokens));
    out.push_back(static_cast<double>(r.output_tokens));
  }
  EXPECT_NEAR(Quantile(in, 0.5), 1014, 40);
  EXPECT_NEAR(Quantile(in, 0.9), 3840, 200);
  EXPECT_NEAR(Quantile(out, 0.5), 115, 5);
  EXPECT_NEAR(Quantile(out, 0.9), 421, 25);
}

TEST(Workload, ArrivalProcessesHaveTheirRateAndVariation) {
  for (const auto& [text, cv] : std::vector<std::pair<std::string, double>>{
           {"poisson", 1.0}, {"gamma:2", 2.0}, {"gamma:0.5", 0.5}, {"constant", 0.0}}) {
    const auto requests = Make("random:in=1,out=1", text, 4.0, 40000);
    double sum = 0, squares = 0;
    for (size_t i = 1; i < requests.size(); ++i) {
      const double gap = static_cast<double>(requests[i].arrival_ns - requests[i - 1].arrival_ns) * 1e-9;
      ASSERT_GE(gap, 0);
      sum += gap;
      squares += gap * gap;
    }
    const double n = static_cast<double>(requests.size() - 1), mean = sum / n;
    EXPECT_NEAR(mean, 0.25, 0.01) << text;
    EXPECT_NEAR(std::sqrt(std::max(0.0, squares / n - mean * mean)) / mean, cv, 0.05) << text;
  }
}

TEST(Workload, OneSeedOneWorkloadAndLengthsDoNotDependOnArrivals) {
  const auto a = Make("code", "poisson", 2, 100, 9), b = Make("code", "poisson", 2, 100, 9),
             c = Make("code", "gamma:3", 2, 100, 9);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].arrival_ns, b[i].arrival_ns);
    EXPECT_EQ(a[i].prompt_tokens, c[i].prompt_tokens);
  }
  EXPECT_NE(a[1].prompt_tokens, Make("code", "poisson", 2, 100, 10)[1].prompt_tokens);
}

TEST(Workload, TurnsOfAConversationGrowAndFollowEachOther) {
  const auto r = Make("multi-turn:turns=3,in=10,out=5", "poisson", 1, 6);
  EXPECT_EQ(r[0].prompt_tokens, 10);
  EXPECT_EQ(r[1].prompt_tokens, 25);
  EXPECT_EQ(r[2].prompt_tokens, 40);
  EXPECT_EQ(r[2].shared_tokens, 30);
  EXPECT_EQ(r[1].arrival_ns, -1);
  EXPECT_EQ(r[3].conversation, 1);
  EXPECT_GE(r[3].arrival_ns, 0);
}

TEST(Workload, ATraceKeepsItsTimesScaledAndRepeats) {
  const std::string path = testing::TempDir() + "/trace.csv";
  std::ofstream(path) << "arrival_s,prompt_tokens,output_tokens,prefix_hash_ids\n0,10,1,1\n2,1000,2,1 3\n3,0,0,\n";
  const auto r = Make("trace:" + path + ":scale=2", "poisson", 0, 4);
  ASSERT_EQ(r.size(), 4u);
  EXPECT_EQ(r[1].arrival_ns, kSecond);
  EXPECT_EQ(r[1].block_ids, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(r[2].prompt_tokens, 10);
  EXPECT_GT(r[2].arrival_ns, r[1].arrival_ns);
}

TEST(Workload, BadInputNamesTheValueAndTheChoices) {
  for (const char* text :
       {"nosuch", "random:in=0", "random:in=x", "random:foo=1", "trace:", "trace:f:scale=0", "chat:x=1"}) {
    auto spec = ParseWorkload(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_NE(spec.status().message().find("workload"), std::string::npos);
  }
  for (const char* text : {"gamma", "gamma:0", "gamma:x", "uniform", "jitter:-1"})
    EXPECT_FALSE(ParseArrivals(text, 1).ok()) << text;
  auto missing = ParseWorkload("trace:/nonexistent/file.csv");
  ASSERT_TRUE(missing.ok());
  EXPECT_FALSE(MakeWorkload(*missing, ArrivalSpec(), 1, 1).ok());
}

}  // namespace
}  // namespace tactus
