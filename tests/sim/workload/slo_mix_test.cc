// Classes and objectives by share: draws by seed, and latencies of a request alone.
#include "sim/workload/slo_mix.h"

#include <gtest/gtest.h>

#include <map>

#include "sim/linear_model.h"
#include "sim/workload/workload.h"

namespace tactus::sim {
namespace {

constexpr DurationNs kMs = kMillisecond;

SloMix ChatAndBatch() {
  SloMix mix;
  mix.classes.push_back({.name = "chat",
                         .share = 3,
                         .ttft = {.low = 10, .high = 10, .times_alone = true},
                         .tbt = {.low = 140.0 * kMs, .high = 234.0 * kMs}});
  mix.classes.push_back({.name = "batch", .share = 1});
  return mix;
}

std::unique_ptr<WorkloadStream> Stream(const std::string& workload, const std::string& arrivals, double rate,
                                       uint64_t seed, const SloMix& mix, int64_t count = 4000) {
  static const LinearModel model;
  auto stream = WorkloadStream::Open(*ParseWorkload(workload), *ParseArrivals(arrivals, rate), count, seed);
  EXPECT_TRUE(stream.ok()) << stream.status().ToString();
  return WithObjectives(std::move(stream).value(), mix, seed,
                        [](const WorkloadRequest& r) { return AloneBy(model, r); });
}

std::vector<WorkloadRequest> All(std::unique_ptr<WorkloadStream> stream) {
  std::vector<WorkloadRequest> all;
  WorkloadRequest r;
  while (stream->Next(&r)) {
    all.push_back(r);
    for (WorkloadRequest turn; stream->NextTurn(all.back(), &turn);) all.push_back(turn);
  }
  return all;
}

TEST(SloMix, ClassesHaveTheirSharesAndObjectivesTheirRanges) {
  const auto all = All(Stream("random:in=200,out=11", "poisson", 5, 7, ChatAndBatch()));
  std::map<std::string, int> counts;
  double least = 1e18, most = 0, sum = 0;
  for (const WorkloadRequest& r : all) {
    ++counts[r.slo_class];
    if (r.slo_class == "batch") {
      EXPECT_FALSE(r.slo.any());
      continue;
    }
    EXPECT_EQ(r.slo.ttft_ns, 10 * 3 * kMs) << "its prompt alone takes 1 ms and 200 times 10 us";
    EXPECT_EQ(r.slo.jct_ns, 0);
    const auto tbt = static_cast<double>(r.slo.tbt_ns);
    least = std::min(least, tbt);
    most = std::max(most, tbt);
    sum += tbt;
  }
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_NEAR(counts["chat"], 3000, 4 * 27.4) << "of 4,000 draws, within four standard deviations";
  EXPECT_GE(least, 140.0 * kMs);
  EXPECT_LT(least, 141.0 * kMs);
  EXPECT_LE(most, 234.0 * kMs);
  EXPECT_GT(most, 233.0 * kMs);
  EXPECT_NEAR(sum / counts["chat"], 187.0 * kMs, 2.0 * kMs);
}

TEST(SloMix, DrawsDependOnTheSeedNotOnArrivals) {
  const SloMix mix = ChatAndBatch();
  const auto a = All(Stream("chat", "poisson", 5, 7, mix, 200)), b = All(Stream("chat", "constant", 9, 7, mix, 200)),
             other = All(Stream("chat", "poisson", 5, 8, mix, 200));
  int differ = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].slo_class, b[i].slo_class) << i;
    EXPECT_EQ(a[i].slo, b[i].slo) << i;
    differ += a[i].slo != other[i].slo;
  }
  EXPECT_GT(differ, 100) << "with another seed";
  // Lengths and arrivals are the same as without objectives.
  const auto plain = All(Stream("chat", "poisson", 5, 7, {}, 200));
  ASSERT_EQ(plain.size(), a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(plain[i].arrival_ns, a[i].arrival_ns);
    EXPECT_EQ(plain[i].prompt_tokens, a[i].prompt_tokens);
    EXPECT_FALSE(plain[i].slo.any());
  }
}

TEST(SloMix, AConversationHasOneClass) {
  std::map<int64_t, std::string> class_of;
  for (const WorkloadRequest& r : All(Stream("multi-turn:turns=4", "poisson", 5, 3, ChatAndBatch(), 400))) {
    const auto [place, first] = class_of.try_emplace(r.conversation, r.slo_class);
    EXPECT_EQ(place->second, r.slo_class) << "conversation " << r.conversation << ", turn " << r.turn;
  }
  EXPECT_EQ(class_of.size(), 100u);
}

// Classes without shares are parts of a mix: a part's requests have its objectives, those of other parts have none, and
// each request keeps its class.
TEST(SloMix, AClassWithoutAShareIsAPartOfTheWorkload) {
  SloMix mix;
  mix.classes.push_back({.name = "chat", .ttft = {.low = 70.0 * kMs, .high = 70.0 * kMs}});
  ASSERT_TRUE(mix.by_workload());
  const std::string workload = "mix:chat=0.5,code=0.5";
  const auto all = All(Stream(workload, "poisson", 5, 7, mix, 400)),
             plain = All(Stream(workload, "poisson", 5, 7, {}, 400));
  int chats = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].slo_class, plain[i].slo_class);
    EXPECT_EQ(all[i].slo.ttft_ns, all[i].slo_class == "chat" ? 70 * kMs : 0) << all[i].slo_class;
    chats += all[i].slo_class == "chat";
  }
  EXPECT_GT(chats, 150);
  EXPECT_LT(chats, 250);
}
TEST(SloMix, AClassWithoutAShareMustBeAPartOfTheWorkload) {
  SloMix mix;
  mix.classes.push_back({.name = "chat"});
  EXPECT_TRUE(CheckClasses(mix, *ParseWorkload("mix:chat=0.5,code=0.5")).ok());
  const Status none = CheckClasses(mix, *ParseWorkload("random:in=9,out=9"));
  EXPECT_EQ(none.param(), "slo-mix");
  EXPECT_NE(none.message().find("'random:in=9,out=9' is not one"), std::string::npos) << none.message();
  mix.classes.push_back({.name = "batch"});
  const Status other = CheckClasses(mix, *ParseWorkload("mix:chat=0.5,code=0.5"));
  EXPECT_EQ(other.param(), "slo-mix");
  EXPECT_NE(other.message().find("no part of that name"), std::string::npos) << other.message();
  for (SloClass& c : mix.classes) c.share = 1;
  EXPECT_TRUE(CheckClasses(mix, *ParseWorkload("random:in=9,out=9")).ok()) << "with shares any workload is accepted";
}

// 200 prompt tokens in 3 ms, then decodes of 1.1 ms plus 1 us per token of context.
TEST(SloMix, LatencyAloneIsThePromptPlusAStepPerFurtherToken) {
  LinearModel model;
  model.context_ns = 1000;
  WorkloadRequest r;
  r.prompt_tokens = 200;
  r.output_tokens = 1;
  EXPECT_EQ(AloneBy(model, r).ttft_ns, 3 * kMs);
  EXPECT_EQ(AloneBy(model, r).jct_ns, 3 * kMs);
  r.output_tokens = 4;  // contexts 201, 202, 203
  EXPECT_EQ(AloneBy(model, r).jct_ns, 3 * kMs + 3 * 1'100'000 + (201 + 202 + 203) * 1000);
  EXPECT_EQ(AloneBy(model, r).tbt_ns, 1'100'000 + 203 * 1000);
  r.output_tokens = 10'001;
  const double exact = 3e6 + 10'000 * 1.1e6 + 1000.0 * (10'000 * 200.0 + 10'000 * 10'001 / 2.0);
  EXPECT_NEAR(static_cast<double>(AloneBy(model, r).jct_ns) / exact, 1, 1e-4) << "linear pieces, 64 of them";
  const LinearModel stages = [] {
    LinearModel m;
    m.num_stages = 2;
    return m;
  }();
  r.output_tokens = 2;
  EXPECT_EQ(AloneBy(stages, r).jct_ns, 2 * (3 * kMs + 1'100'000)) << "the sum of all stages";
}

}  // namespace
}  // namespace tactus::sim
