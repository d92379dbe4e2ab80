#include "sim/workload/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <numeric>

namespace tactus::sim {
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

double Distance(std::vector<double> a, std::vector<double> b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  double worst = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const double v = std::min(a[i], b[j]);
    while (i < a.size() && a[i] <= v) ++i;
    while (j < b.size() && b[j] <= v) ++j;
    worst = std::max(worst, std::abs(static_cast<double>(i) / static_cast<double>(a.size()) -
                                     static_cast<double>(j) / static_cast<double>(b.size())));
  }
  return worst;
}

// Generated lengths compared with the traces: the distances of docs/reference/workloads.md plus the sampling error.
TEST(Workload, NamedDistributionsMatchTheirTracesAsStated) {
  const char* data = std::getenv("TACTUS_DATA");
  if (data == nullptr) GTEST_SKIP() << "TACTUS_DATA is not set";
  struct Stated {
    const char* name;
    const char* trace;
    double prompt, output;
  };
  for (const Stated& s :
       {Stated{"chat", "azure2023_conv", 0.046, 0.019}, Stated{"code", "azure2023_code", 0.023, 0.021},
        Stated{"summarize", "arxiv_summarization_4k", 0.006, 0.015}, Stated{"long-output", "bwb_4k", 0.007, 0.007},
        Stated{"sharegpt", "openchat_sharegpt4", 0.004, 0.004},
        Stated{"long-context", "mooncake_conversation", 0.016, 0.011}}) {
    std::vector<double> lengths[2][2];  // [drawn, trace][prompt, output]
    const auto trace = Make(std::string("lengths:") + data + "/traces/" + s.trace + ".csv", "poisson", 1, 0);
    const auto drawn = Make(s.name, "poisson", 1, 40000);
    for (const auto& [requests, out] : {std::pair(&drawn, lengths[0]), std::pair(&trace, lengths[1])}) {
      for (const auto& r : *requests) {
        out[0].push_back(static_cast<double>(r.prompt_tokens));
        out[1].push_back(static_cast<double>(r.output_tokens));
      }
    }
    constexpr double kDraw = 1.63 / 200;  // 99 % of Kolmogorov's distribution at 40,000
    EXPECT_LT(Distance(lengths[0][0], lengths[1][0]), s.prompt + kDraw) << s.name;
    EXPECT_LT(Distance(lengths[0][1], lengths[1][1]), s.output + kDraw) << s.name;
  }
}

TEST(Workload, PromptAndOutputLengthsCorrelateAsInTheTrace) {
  const auto correlation = [](const char* name) {
    const auto requests = Make(name, "poisson", 1, 20000);
    std::vector<double> in, out;
    for (const auto& r : requests) {
      in.push_back(std::log(static_cast<double>(r.prompt_tokens)));
      out.push_back(std::log(static_cast<double>(r.output_tokens)));
    }
    const auto mean = [](const std::vector<double>& v) {
      return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
    };
    const double a = mean(in), b = mean(out);
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      ab += (in[i] - a) * (out[i] - b);
      aa += (in[i] - a) * (in[i] - a);
      bb += (out[i] - b) * (out[i] - b);
    }
    return ab / std::sqrt(aa * bb);
  };
  EXPECT_GT(correlation("long-output"), 0.7);
  EXPECT_LT(std::abs(correlation("chat")), 0.1);
}

TEST(Workload, AStreamOfOneFileServesManyRuns) {
  const std::string path = testing::TempDir() + "/shared.csv";
  std::ofstream(path) << "prompt_tokens,output_tokens\n10,1\n20,2\n";
  auto spec = ParseWorkload("lengths:" + path);
  ASSERT_TRUE(spec.ok() && LoadRows(&*spec).ok());
  ASSERT_EQ(std::remove(path.c_str()), 0);
  for (int run = 0; run < 2; ++run) {
    auto stream = WorkloadStream::Open(*spec, *ParseArrivals("constant", 4), 5, 1);
    ASSERT_TRUE(stream.ok()) << stream.status().ToString();
    WorkloadRequest r;
    std::vector<int64_t> prompts;
    while ((*stream)->Next(&r)) prompts.push_back(r.prompt_tokens);
    EXPECT_EQ(prompts, (std::vector<int64_t>{10, 20, 10, 20, 10}));
  }
}

// Jitter may reorder rows: the stream is still sorted and complete.
TEST(Workload, JitterKeepsTheOrderAndEveryRow) {
  const std::string path = testing::TempDir() + "/jitter.csv";
  std::string text = "arrival_s,prompt_tokens,output_tokens\n";
  for (int i = 0; i < 200; ++i) text += std::to_string(i / 10) + ".5," + std::to_string(i + 1) + ",1\n";
  std::ofstream(path) << text;
  const auto requests = Make("trace:" + path, "jitter:3s", 0, 500);
  ASSERT_EQ(requests.size(), 500u);
  std::vector<int> seen(201);
  bool overtaken = false;
  for (size_t i = 0; i < requests.size(); ++i) {
    ++seen[static_cast<size_t>(requests[i].prompt_tokens)];
    if (i == 0) continue;
    EXPECT_GE(requests[i].arrival_ns, requests[i - 1].arrival_ns);
    overtaken = overtaken || requests[i].index < requests[i - 1].index;
  }
  EXPECT_TRUE(overtaken);
  for (int i = 1; i <= 200; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i <= 100 ? 3 : 2) << i;
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

TEST(Workload, TheSeedDeterminesTheWorkloadAndLengthsDoNotDependOnArrivals) {
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

// Three turns per conversation and five requests: the second conversation ends after two.
TEST(Workload, ACountMayEndWithinAConversation) {
  const auto r = Make("multi-turn:turns=3,in=10,out=5", "poisson", 1, 5);
  ASSERT_EQ(r.size(), 5u);
  for (size_t i = 0; i < r.size(); ++i) {
    EXPECT_EQ(r[i].index, static_cast<int64_t>(i));
    EXPECT_EQ(r[i].conversation, static_cast<int64_t>(i / 3));
    EXPECT_EQ(r[i].turn, static_cast<int64_t>(i % 3));
  }
  auto stream = WorkloadStream::Open(*ParseWorkload("multi-turn:turns=3"), ArrivalSpec(), 5, 1);
  ASSERT_TRUE(stream.ok());
  WorkloadRequest next;
  EXPECT_FALSE((*stream)->NextTurn(r[4], &next));  // the fifth request is the last
  EXPECT_FALSE((*stream)->NextTurn(r[2], &next));  // the last turn
  EXPECT_TRUE((*stream)->NextTurn(r[3], &next));
  EXPECT_EQ(Make("multi-turn:turns=3", "poisson", 1, 6).size(), 6u);
  EXPECT_EQ(Make("multi-turn:turns=3", "poisson", 1, 1).size(), 1u);
}

TEST(Workload, DefaultsMatchTheHelp) {
  const auto random = Make("random", "poisson", 1, 0);
  EXPECT_EQ(random.size(), 100u);
  EXPECT_EQ(random[0].prompt_tokens, 512);
  EXPECT_EQ(random[0].output_tokens, 128);
  EXPECT_EQ(random[0].prefix_id, -1);
  const auto prefix = Make("prefix", "poisson", 1, 2);
  EXPECT_EQ(prefix[1].prompt_tokens, 1024 + 128);
  EXPECT_EQ(prefix[1].output_tokens, 64);
  EXPECT_EQ(prefix[1].shared_tokens, 1024);
  EXPECT_EQ(prefix[1].prefix_id, prefix[0].prefix_id);
  const auto turns = Make("multi-turn", "poisson", 1, 5);
  EXPECT_EQ(turns[0].prompt_tokens, 128);
  EXPECT_EQ(turns[3].prompt_tokens, 4 * 128 + 3 * 128);
  EXPECT_EQ(turns[3].output_tokens, 128);
  EXPECT_EQ(turns[4].turn, 0);
}

TEST(Workload, ConstantArrivalsStartAtZeroAndJitterStaysWithinItsBound) {
  const auto r = Make("random:in=1,out=1", "constant", 4, 4);
  for (size_t i = 0; i < r.size(); ++i) EXPECT_EQ(r[i].arrival_ns, static_cast<int64_t>(i) * 250 * kMillisecond);
  EXPECT_EQ(Make("random:in=1,out=1", "poisson", 4, 1)[0].arrival_ns, 0);
  const std::string path = testing::TempDir() + "/steady.csv";
  std::string text = "arrival_s,prompt_tokens,output_tokens\n";
  for (int i = 0; i < 400; ++i) text += std::to_string(i) + "," + std::to_string(i + 1) + ",1\n";
  std::ofstream(path) << text;
  TimeNs least = kNever, most = 0;
  for (const auto& request : Make("trace:" + path, "jitter:2000ms", 0, 0)) {
    const TimeNs late = request.arrival_ns - (request.prompt_tokens - 1) * kSecond;
    least = std::min(least, late);
    most = std::max(most, late);
  }
  EXPECT_GE(least, 0);
  EXPECT_LT(most, 2 * kSecond);
  EXPECT_LT(least, kSecond / 10);  // minimum of 400 uniform values
  EXPECT_GT(most, 2 * kSecond - kSecond / 10);
}

TEST(Workload, StreamsReportTheirProperties) {
  const std::string path = testing::TempDir() + "/said.csv";
  std::ofstream(path) << "arrival_s,prompt_tokens,output_tokens\n1,10,1\n2,0,1\n5,20,1\n";
  const auto open = [&](const std::string& text, double rate) {
    return WorkloadStream::Open(*ParseWorkload(text), *ParseArrivals("poisson", rate), 0, 1).value();
  };
  EXPECT_TRUE(open("trace:" + path, 0)->has_arrivals());
  EXPECT_FALSE(open("lengths:" + path, 0)->has_arrivals());  // its times are ignored
  EXPECT_TRUE(open("lengths:" + path, 3)->has_arrivals());
  EXPECT_FALSE(open("random", 0)->has_arrivals());
  EXPECT_TRUE(open("random", 1)->has_arrivals());
  EXPECT_EQ(open("trace:" + path, 0)->count(), 2);
  EXPECT_EQ(open("trace:" + path, 0)->rows_dropped(), 1);
  EXPECT_EQ(open("random", 0)->rows_dropped(), 0);
  EXPECT_TRUE(open("prefix", 0)->shares_text() && open("multi-turn", 0)->shares_text());
  EXPECT_FALSE(open("random", 0)->shares_text() || open("chat", 0)->shares_text() ||
               open("trace:" + path, 0)->shares_text());
  WorkloadRequest r, next;
  const auto trace = open("trace:" + path, 0);
  ASSERT_TRUE(trace->Next(&r));
  EXPECT_FALSE(trace->NextTurn(r, &next));
  // A rate replaces a trace's times.
  auto paced = WorkloadStream::Open(*ParseWorkload("trace:" + path), *ParseArrivals("constant", 10), 2, 1).value();
  ASSERT_TRUE(paced->Next(&r) && paced->Next(&r));
  EXPECT_EQ(r.arrival_ns, kSecond / 10);
}

// The second round of a trace starts a mean gap after the first round's last arrival, in scaled time.
TEST(Workload, RoundsOfATraceAreAMeanGapApart) {
  const std::string path = testing::TempDir() + "/rounds.csv";
  std::ofstream(path) << "arrival_s,prompt_tokens,output_tokens\n1,10,1\n3,10,1\n5,20,1\n";
  const auto r = Make("trace:" + path + ":scale=2", "poisson", 0, 7);
  ASSERT_EQ(r.size(), 7u);
  for (size_t i = 0; i < r.size(); ++i) EXPECT_EQ(r[i].arrival_ns, static_cast<TimeNs>(i) * kSecond) << i;
}

// Clock times in a trace cause no initial wait, in any round.
TEST(Workload, ATraceBeginsWithItsFirstRequest) {
  const std::string path = testing::TempDir() + "/late.csv";
  std::ofstream(path) << "arrival_s,prompt_tokens,output_tokens\n100000,10,10\n100001,10,10\n";
  const auto r = Make("trace:" + path, "poisson", 0, 6);
  ASSERT_EQ(r.size(), 6u);
  for (size_t i = 0; i < r.size(); ++i) EXPECT_EQ(r[i].arrival_ns, static_cast<TimeNs>(i) * kSecond) << i;
}

// A trace with a single instant defines no rate.
TEST(Workload, ATraceOfOneInstantIsNotRepeated) {
  for (const char* rows : {"7,10,1\n", "7,10,1\n7,20,1\n"}) {
    const std::string path = testing::TempDir() + "/instant.csv";
    std::ofstream(path) << "arrival_s,prompt_tokens,output_tokens\n" << rows;
    const auto open = [&path](const char* kind, double rate, int64_t count) {
      return WorkloadStream::Open(*ParseWorkload(kind + path), *ParseArrivals("poisson", rate), count, 1).status();
    };
    EXPECT_TRUE(open("trace:", 0, 0).ok());
    const Status repeated = open("trace:", 0, 3);
    EXPECT_EQ(repeated.param(), "workload") << rows;
    EXPECT_NE(repeated.message().find("or give --rate"), std::string::npos) << repeated.message();
    EXPECT_TRUE(open("trace:", 5, 3).ok());
    EXPECT_TRUE(open("lengths:", 0, 3).ok());
  }
}

TEST(Workload, LimitsMatchTheirMessages) {
  EXPECT_TRUE(ParseWorkload("random:in=1,out=10000000").ok());
  for (const char* text : {"random:in=10000001", "random:out=0", "random:in=1.5", "random:in=-1",
                           "random:in=", "random:in=inf", "prefix:in=5", "multi-turn:turns=0", "trace:f:scale=-1",
                           "trace:f:scale=nan", "trace::scale=2", "lengths:f:scale=2", "random:in=1,", ""}) {
    EXPECT_FALSE(ParseWorkload(text).ok()) << text;
  }
  EXPECT_DOUBLE_EQ(ParseWorkload("trace:f:scale=0.25")->scale, 0.25);
  EXPECT_EQ(ParseWorkload("trace:a:b.csv")->file, "a:b.csv");
  EXPECT_DOUBLE_EQ(ParseArrivals("gamma:100", 1)->cv, 100);
  EXPECT_FALSE(ParseArrivals("gamma:100.1", 1).ok());
  EXPECT_DOUBLE_EQ(ParseArrivals("jitter:0", 0)->jitter_s, 0);
  EXPECT_DOUBLE_EQ(ParseArrivals("jitter:500ms", 0)->jitter_s, 0.5);
  EXPECT_NE(ParseArrivals("jitter:500", 0).status().message().find("'500' has no unit: write 500ms or 500s"),
            std::string::npos);
  for (const char* text : {"poisson:1", "constant:1", "gamma:-1", "jitter", "jitter:x", ""})
    EXPECT_FALSE(ParseArrivals(text, 1).ok()) << text;
  // The last accepted time is exactly 4e9 s.
  const auto open = [](const char* arrivals, double rate, int64_t count) {
    return WorkloadStream::Open(*ParseWorkload("random"), *ParseArrivals(arrivals, rate), count, 1).status();
  };
  EXPECT_TRUE(open("constant", 1e-9, 4).ok());
  EXPECT_FALSE(open("constant", 1e-9, 5).ok());
  EXPECT_EQ(open("jitter:1s", 0, 5).param(), "arrivals");
  const std::string path = testing::TempDir() + "/untimed.csv";
  std::ofstream(path) << "prompt_tokens,output_tokens\n10,1\n";
  for (const char* kind : {"trace:", "lengths:"}) {
    EXPECT_EQ(WorkloadStream::Open(*ParseWorkload(kind + path), *ParseArrivals("jitter:1s", 0), 5, 1).status().param(),
              "arrivals");
  }
  const std::string timed = testing::TempDir() + "/timed.csv";
  std::ofstream(timed) << "arrival_s,prompt_tokens,output_tokens\n1,10,1\n";
  EXPECT_EQ(
      WorkloadStream::Open(*ParseWorkload("trace:" + timed), *ParseArrivals("jitter:1s", 2), 5, 1).status().param(),
      "rate");
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

// Times beyond 64-bit nanoseconds are rejected, for any cause.
TEST(Workload, ArrivalsBeyondTheClockAreRefused) {
  const std::string path = testing::TempDir() + "/far_trace.csv";
  std::ofstream(path) << "arrival_s,prompt_tokens,output_tokens\n0,10,1\n3e9,10,1\n";
  const auto open = [&](const std::string& text, const char* arrivals, double rate, int64_t count) {
    return WorkloadStream::Open(ParseWorkload(text).value(), ParseArrivals(arrivals, rate).value(), count, 1).ok();
  };
  EXPECT_TRUE(open("trace:" + path, "poisson", 0, 0));
  EXPECT_FALSE(open("trace:" + path + ":scale=1e-9", "poisson", 0, 0));
  EXPECT_FALSE(open("trace:" + path, "poisson", 0, 3));  // a second round
  EXPECT_TRUE(open("trace:" + path + ":scale=2", "poisson", 0, 3));
  EXPECT_FALSE(open("trace:" + path, "jitter:9e8s", 0, 0) && open("trace:" + path, "jitter:2e9s", 0, 0));
  EXPECT_FALSE(ParseArrivals("jitter:1e300s", 0).ok());
  EXPECT_FALSE(open("random", "poisson", 1e-300, 0));
  EXPECT_TRUE(open("random", "poisson", 1e-6, 4));
}

TEST(Workload, AMixDrawsFromItsPartsByShare) {
  const auto spec = ParseWorkload("mix:code=0.25,long-output=0.75");
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  const auto mixed = MakeWorkload(*spec, *ParseArrivals("poisson", 5), 4000, 3);
  ASSERT_TRUE(mixed.ok());
  std::map<std::string, std::vector<int64_t>> outputs;
  for (const WorkloadRequest& r : *mixed) outputs[r.slo_class].push_back(r.output_tokens);
  ASSERT_EQ(outputs.size(), 2u) << "each request has its part's class";
  EXPECT_NEAR(static_cast<double>(outputs["code"].size()), 1000, 4 * 27.4) << "within four standard deviations";
  for (auto& [name, values] : outputs) std::sort(values.begin(), values.end());
  EXPECT_NEAR(static_cast<double>(outputs["code"][outputs["code"].size() / 2]), 13, 2);
  EXPECT_NEAR(static_cast<double>(outputs["long-output"][outputs["long-output"].size() / 2]), 1605, 60);
  const auto again = MakeWorkload(*spec, *ParseArrivals("constant", 1), 4000, 3);
  for (size_t i = 0; i < 4000; ++i) ASSERT_EQ((*again)[i].prompt_tokens, (*mixed)[i].prompt_tokens);
  for (const auto& [text, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"mix:", "'' is not one of"},
           {"mix", "'' is not one of"},
           {"mix:chat", "'chat' is not one of"},
           {"mix:nosuch=1", "'nosuch=1' is not one of chat=SHARE"},
           {"mix:chat=0,code=1", "'chat=0' needs a share above 0"},
           {"mix:chat=x,code=1", "'chat=x' needs a share"},
           {"mix:chat=0.5,chat=0.5", "'chat' twice"},
           {"mix:chat=0.5,code=0.4", "the shares sum to 0.9; they must sum to 1"}}) {
    const Status status = ParseWorkload(text).status();
    EXPECT_NE(status.message().find(why), std::string::npos) << text << ": " << status.message();
    EXPECT_EQ(status.param(), "workload");
  }
}

TEST(Workload, BadInputNamesTheValueAndTheChoices) {
  for (const char* text : {"nosuch", "random:in=0", "random:in=x", "random:foo=1", "trace:", "trace:f:scale=0",
                           "chat:x=1", "random:in=10,out=3,in=4"}) {
    auto spec = ParseWorkload(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_NE(spec.status().message().find("workload"), std::string::npos);
  }
  for (const char* text : {"gamma", "gamma:0", "gamma:x", "uniform", "jitter:-1s"})
    EXPECT_FALSE(ParseArrivals(text, 1).ok()) << text;
  auto missing = ParseWorkload("trace:" + testing::TempDir() + "/no_such_folder/file.csv");
  ASSERT_TRUE(missing.ok());
  EXPECT_FALSE(MakeWorkload(*missing, ArrivalSpec(), 1, 1).ok());
}

}  // namespace
}  // namespace tactus::sim
