// Predictions of all predictors, and that only simulations may use true lengths.
#include <gtest/gtest.h>

#include <malloc.h>

#include <cmath>

#include "base/hash.h"
#include "base/rng.h"
#include "base/sim_request.h"
#include "core/predict/predictor.h"

namespace tactus::core {
namespace {

PredictorOptions Options() {
  PredictorOptions o;
  o.slot_capacity = 8;
  o.max_model_len = 100000;
  o.true_lengths_known = true;
  return o;
}

std::unique_ptr<LengthPredictor> Make(const std::string& name) {
  auto made = MakePredictor(name, Options());
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return std::move(made).value();
}

PredictionFeatures Features(int32_t prompt, int32_t most, uint64_t client = 0, std::span<const Hash128> keys = {}) {
  PredictionFeatures f;
  f.prompt_tokens = prompt;
  f.max_output_tokens = most;
  f.client = client;
  f.prefix_keys = keys;
  return f;
}

void Observe(LengthPredictor* p, const PredictionFeatures& features, int32_t output, int times = 1) {
  for (int i = 0; i < times; ++i) {
    p->Bind(0, features);
    p->Ended(0, output, false);
  }
}

int32_t Ask(LengthPredictor* p, const PredictionFeatures& features, int32_t attempt = 0) {
  p->Bind(1, features);
  return p->PredictOutputTokens(1, attempt);
}

TEST(Predictors, StatedReturnsWorkloadPredictionOrMaximum) {
  const auto stated = Make("stated");
  SimRequest request;
  request.output_tokens = 500;
  request.predicted_output_tokens = 30;
  PredictionFeatures f = Features(10, 100);
  f.request = &request;
  EXPECT_EQ(Ask(stated.get(), f), 30) << "not the true length";
  EXPECT_EQ(Ask(stated.get(), f, 1), 60);
  EXPECT_EQ(Ask(stated.get(), f, 2), 100) << "at most max_output_tokens";
  request.predicted_output_tokens = 0;
  EXPECT_EQ(Ask(stated.get(), f), 100);
  EXPECT_FALSE(stated->learns()) << "a recording must store its predictions";
}

TEST(Predictors, KnownNamesAreMadeAndOthersRefused) {
  EXPECT_EQ(Make("none"), nullptr);
  EXPECT_STREQ(Make("history")->name(), "history");
  EXPECT_STREQ(Make("oracle")->name(), "oracle");
  EXPECT_STREQ(Make("noisy:0.5")->name(), "noisy:0.5");
  EXPECT_STREQ(Make("stated")->name(), "stated");
  for (const char* bad : {"noisy", "noisy:", "noisy:x", "noisy:-1", "noisy:inf", "noisy:0x1", "magic"}) {
    const auto made = MakePredictor(bad, Options());
    ASSERT_FALSE(made.ok()) << bad;
    EXPECT_NE(made.status().message().find(bad), std::string::npos) << made.status().message();
  }
  // A name with a known suffix is unknown; the error is not about the deviation.
  EXPECT_NE(MakePredictor("xnoisy:0.5", Options()).status().message().find("unknown predictor 'xnoisy:0.5'"),
            std::string::npos);
  PredictorOptions serving = Options();
  serving.true_lengths_known = false;
  for (const char* name : {"oracle", "noisy:0.5", "stated"}) {
    const auto made = MakePredictor(name, serving);
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.status().message().find("--predictor history"), std::string::npos);
  }
  EXPECT_TRUE(MakePredictor("history", serving).ok());
}

// Predictors whose predictions a recording need not store.
TEST(Predictors, OnlyNoneAndHistoryLearn) {
  for (const char* name : {"none", "history"}) EXPECT_TRUE(Learns(name)) << name;
  for (const char* name : {"oracle", "noisy:0.5", "stated", "magic"}) EXPECT_FALSE(Learns(name)) << name;
}

TEST(Predictors, PredictionsAreBoundedAndGrowWithAttempt) {
  EXPECT_EQ(GrownPrediction(100, 0, 1000), 100);
  EXPECT_EQ(GrownPrediction(100, 1, 1000), 200);
  EXPECT_EQ(GrownPrediction(100, 4, 1000), 1000);
  EXPECT_EQ(GrownPrediction(0, 0, 10), 1);
  EXPECT_EQ(GrownPrediction(int64_t{1} << 30, 40, 7), 7);
  auto p = Make("history");
  EXPECT_EQ(Ask(p.get(), Features(10, 16)), 16);  // no observations; capped at max_output_tokens
}

// A prediction counts as at least one token, so that later attempts always grow. Sigma may be up to 10.
TEST(Predictors, LimitsOfGrowthAndSigma) {
  EXPECT_EQ(GrownPrediction(0, 3, 100), 8);
  EXPECT_EQ(GrownPrediction(-5, 1, 100), 2);
  EXPECT_EQ(GrownPrediction(100, 0, 0), 1);
  EXPECT_TRUE(MakePredictor("noisy:10", Options()).ok());
  EXPECT_TRUE(MakePredictor("noisy:0", Options()).ok());
  EXPECT_FALSE(MakePredictor("noisy:10.5", Options()).ok());
}

// One output of 40 tokens and the first guess of 256, which weighs as four: (40 + 4 * 256) / 5 = 212.8 for all
// requests, and (40 + 4 * 212.8) / 5 = 178.24 for prompts of that length. Rounded to the nearest.
TEST(History, OneOutputMatchesHandCalculation) {
  auto p = Make("history");
  EXPECT_EQ(Ask(p.get(), Features(100, 4000)), 256);
  Observe(p.get(), Features(100, 4000), 40);
  EXPECT_EQ(Ask(p.get(), Features(3000, 4000)), 213);
  EXPECT_EQ(Ask(p.get(), Features(100, 4000)), 178);
  EXPECT_EQ(Ask(p.get(), Features(100, 4000), 1), 356);
}

// An output that was cut off is no observation.
TEST(History, FirstCutOffOutputIsIgnored) {
  auto p = Make("history");
  p->Bind(0, Features(100, 4000));
  p->Ended(0, 1, true);
  EXPECT_EQ(Ask(p.get(), Features(100, 4000)), 256);
}

// Length classes are a quarter of an octave: 64 to 79, 80 to 95, ...; the shortest prompts have one class each.
TEST(History, LengthClassesAreQuartersOfAnOctave) {
  auto p = Make("history");
  Observe(p.get(), Features(64, 4000), 40);
  EXPECT_EQ(Ask(p.get(), Features(79, 4000)), 178);
  EXPECT_EQ(Ask(p.get(), Features(80, 4000)), 213);
  EXPECT_EQ(Ask(p.get(), Features(63, 4000)), 213);
  auto q = Make("history");
  Observe(q.get(), Features(3, 4000), 40);
  EXPECT_EQ(Ask(q.get(), Features(3, 4000)), 178);
  EXPECT_EQ(Ask(q.get(), Features(2, 4000)), 213);
}

std::vector<Hash128> Keys(size_t blocks) {
  std::vector<Hash128> keys(blocks);
  for (size_t i = 0; i < blocks; ++i) keys[i] = {i + 1, ~i};
  return keys;
}

// Prefix nodes are those 1, 2, 4, ... blocks deep. Each shrinks the distance to 40 by a fifth: from 178.24 to 150.59
// (1), 128.47 (2) and 110.78 (4).
TEST(History, PrefixNodesAreAtPowersOfTwo) {
  for (const auto& [blocks, expected] : {std::pair<size_t, int32_t>{0, 178}, {1, 151}, {2, 128}, {3, 128}, {4, 111}}) {
    auto p = Make("history");
    const std::vector<Hash128> keys = Keys(blocks);
    Observe(p.get(), Features(100, 4000, 0, keys), 40);
    EXPECT_EQ(Ask(p.get(), Features(100, 4000, 0, keys)), expected) << blocks << " blocks";
  }
}

// Prefix nodes are up to 2,048 blocks deep: twelve of them, 40 + 138.24 * 0.8^12 = 49.5. A thirteenth would be at
// 4,096.
TEST(History, TwelvePrefixNodesAtMost) {
  for (const size_t blocks : {size_t{2048}, size_t{4096}}) {
    auto p = Make("history");
    const std::vector<Hash128> keys = Keys(blocks);
    Observe(p.get(), Features(100, 4000, 0, keys), 40);
    EXPECT_EQ(Ask(p.get(), Features(100, 4000, 0, keys)), 49) << blocks << " blocks";
  }
}

// 4,096 clients fill the table, the first with eight outputs. Each output of a new client then halves the weight of one
// entry, in turn: the first client keeps its entry with weight four, the second loses its entry, and so on.
TEST(History, NewClientReplacesEntryOfExhaustedWeight) {
  auto p = Make("history");
  const PredictionFeatures holder = Features(100, 4000, 1), second = Features(100, 4000, 2),
                           third = Features(100, 4000, 3), newcomer = Features(100, 4000, 5000),
                           anybody = Features(100, 4000);
  Observe(p.get(), holder, 10, 8);
  for (uint64_t client = 2; client <= 4096; ++client) Observe(p.get(), Features(100, 4000, client), 10);
  Observe(p.get(), anybody, 500, 128);
  Observe(p.get(), newcomer, 2000);
  EXPECT_EQ(Ask(p.get(), newcomer), Ask(p.get(), anybody)) << "the first client lost its entry too early";
  EXPECT_LT(Ask(p.get(), holder), Ask(p.get(), second)) << "the first has weight 4, the second 1";
  EXPECT_LT(Ask(p.get(), second), Ask(p.get(), anybody));
  Observe(p.get(), newcomer, 2000);
  EXPECT_GT(Ask(p.get(), newcomer), Ask(p.get(), anybody));
  EXPECT_EQ(Ask(p.get(), second), Ask(p.get(), anybody)) << "it has lost its entry";
  EXPECT_LT(Ask(p.get(), third), Ask(p.get(), anybody));
}

// An allocation at the end of a request would be one on the engine thread.
TEST(History, OnlyALeanOneGrowsWithItsOwners) {
  std::vector<int32_t> predictions;
  for (const bool lean : {false, true}) {
    PredictorOptions options = Options();
    options.lean = lean;
    const auto p = MakeHistory(options);
    p->Bind(1, Features(100, 4000, 1));  // the highest slot of this test
    const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    if (before == 0) GTEST_SKIP() << "this build has another allocator";
    for (uint64_t client = 1; client <= 5000; ++client)
      Observe(p.get(), Features(100, 4000, client), static_cast<int32_t>(client % 97) + 1);
    const size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
    if (lean) {
      EXPECT_GT(after, before) << "a lean one has all its memory from the start";
    } else {
      EXPECT_EQ(after, before) << "it allocates at the ends of requests";
    }
    predictions.push_back(Ask(p.get(), Features(100, 4000, 4000)));
  }
  EXPECT_EQ(predictions[0], predictions[1]);
}

// A server draws the secret of client and block keys at each start. Equal requests still have equal predictions, also
// with more owners than entries.
TEST(History, PredictionsDoNotDependOnTheKeys) {
  const auto run = [](uint64_t secret) {
    auto p = Make("history");
    Rng rng(11);
    std::vector<int32_t> answers;
    for (int i = 0; i < 20000; ++i) {
      const uint64_t client = 1 + rng.Next64() % 6000, prefix = rng.Next64() % 40000;
      const auto key = [secret](uint64_t x) { return MixHash(secret, x); };
      const std::vector<Hash128> keys = {{key(prefix / 8), 1}, {key(prefix + 1000000), 2}};
      const PredictionFeatures features = Features(100, 4000, key(client), keys);
      answers.push_back(Ask(p.get(), features));
      Observe(p.get(), features, static_cast<int32_t>(1 + client % 900 + prefix % 300));
    }
    return answers;
  };
  EXPECT_EQ(run(0x1234567), run(0xfedcba9876543));
}

// Requests without a client change no entry, not even that of the client whose hash falls on place 0.
TEST(History, RequestsWithoutClientUseNoEntry) {
  auto p = Make("history");
  Observe(p.get(), Features(100, 4000, 4096), 10);
  Observe(p.get(), Features(100, 4000), 1000);
  EXPECT_LT(Ask(p.get(), Features(100, 4000, 4096)), Ask(p.get(), Features(100, 4000)));
}

TEST(History, LearnsTheMeanAndFollowsAChange) {
  auto p = Make("history");
  const int32_t before = Ask(p.get(), Features(100, 4000));
  Observe(p.get(), Features(100, 4000), 40, 200);
  const int32_t after = Ask(p.get(), Features(100, 4000));
  EXPECT_NEAR(after, 40, 2) << "was " << before;
  Observe(p.get(), Features(100, 4000), 900, 600);
  EXPECT_NEAR(Ask(p.get(), Features(100, 4000)), 900, 30);
}

TEST(History, DistinguishesShortAndLongPrompts) {
  auto p = Make("history");
  for (int i = 0; i < 100; ++i) {
    Observe(p.get(), Features(50, 4000), 500);
    Observe(p.get(), Features(3000, 4000), 20);
  }
  EXPECT_NEAR(Ask(p.get(), Features(50, 4000)), 500, 30);
  EXPECT_NEAR(Ask(p.get(), Features(3000, 4000)), 20, 30);
  const int32_t between = Ask(p.get(), Features(500, 4000));  // a class without observations: the mean of all
  EXPECT_NEAR(between, 260, 40);
}

TEST(History, ClientsHaveSeparateAverages) {
  auto p = Make("history");
  for (int i = 0; i < 60; ++i) {
    Observe(p.get(), Features(100, 4000, 7), 10);
    Observe(p.get(), Features(100, 4000, 9), 1000);
  }
  EXPECT_LT(Ask(p.get(), Features(100, 4000, 7)), 60);
  EXPECT_GT(Ask(p.get(), Features(100, 4000, 9)), 900);
  EXPECT_NEAR(Ask(p.get(), Features(100, 4000)), 505, 60);
}

TEST(History, TablesKeepEveryClientWhileTheyGrow) {
  auto p = Make("history");
  constexpr uint64_t kClients = 3000;
  for (uint64_t client = 1; client <= kClients; ++client)
    Observe(p.get(), Features(100, 4000, client), client % 2 == 0 ? 10 : 1000, 60);
  for (uint64_t client = 1; client <= kClients; ++client) {
    const int32_t answer = Ask(p.get(), Features(100, 4000, client));
    ASSERT_TRUE(client % 2 == 0 ? answer < 60 : answer > 900) << "client " << client << " is predicted " << answer;
  }
}

// Two system prompts of two blocks each, with another continuation every time.
TEST(History, KnownPrefixDecidesForAnyContinuation) {
  auto p = Make("history");
  const auto prompt = [](uint64_t system, uint64_t user) {
    return std::vector<Hash128>{{system * 1000 + 1, 0}, {system * 1000 + 2, 0}, {user * 7919 + 500000, 0}};
  };
  for (uint64_t i = 0; i < 60; ++i) {
    const auto a = prompt(1, i), b = prompt(2, i + 1000);
    Observe(p.get(), Features(48, 4000, 0, a), 15);
    Observe(p.get(), Features(48, 4000, 0, b), 1500);
  }
  const auto a = prompt(1, 99999), b = prompt(2, 99998), c = prompt(3, 99997);
  EXPECT_LT(Ask(p.get(), Features(48, 4000, 0, a)), 60);
  EXPECT_GT(Ask(p.get(), Features(48, 4000, 0, b)), 1400);
  EXPECT_NEAR(Ask(p.get(), Features(48, 4000, 0, c)), 757, 120);
}

TEST(History, LaterCutOffOutputsAreIgnored) {
  auto p = Make("history");
  Observe(p.get(), Features(100, 4000), 300, 50);
  const int32_t before = Ask(p.get(), Features(100, 4000));
  for (int i = 0; i < 50; ++i) {
    p->Bind(0, Features(100, 4000));
    p->Ended(0, 1, true);
  }
  EXPECT_EQ(Ask(p.get(), Features(100, 4000)), before);
}

// Many more clients and prefixes than entries: predictions stay in range, and a frequent client keeps its entry.
TEST(History, TablesDoNotGrow) {
  auto p = Make("history");
  Rng rng(5);
  for (int i = 0; i < 100000; ++i) {
    const std::vector<Hash128> keys = {{rng.Next64(), 1}, {rng.Next64(), 2}};
    Observe(p.get(), Features(100, 4000, rng.Next64() | 1, keys), 100);
    if (i % 10 == 0) Observe(p.get(), Features(100, 4000, 12345), 2000);
  }
  EXPECT_GT(Ask(p.get(), Features(100, 4000, 12345)), 1500);
  EXPECT_LT(Ask(p.get(), Features(100, 4000, 54321)), 600);
}

TEST(Oracle, PredictsTrueLength) {
  auto p = Make("oracle");
  SimRequest r;
  r.output_tokens = 37;
  PredictionFeatures f = Features(10, 100);
  f.request = &r;
  EXPECT_EQ(Ask(p.get(), f), 37);
  EXPECT_EQ(Ask(p.get(), f, 1), 74);
  f.max_output_tokens = 20;
  EXPECT_EQ(Ask(p.get(), f), 20);  // the output will be cut there
}

// The error is log-normal with the requested deviation, is equal for equal seeds and differs between seeds.
TEST(Noisy, ErrorHasRequestedDeviation) {
  SimRequest r;
  r.output_tokens = 10000;
  PredictionFeatures f = Features(10, 1 << 30);
  f.request = &r;
  auto p = Make("noisy:0.5"), same = Make("noisy:0.5"), exact = Make("noisy:0");
  PredictorOptions other_seed = Options();
  other_seed.seed = 1;
  auto other = std::move(MakePredictor("noisy:0.5", other_seed)).value();
  double sum = 0, squares = 0;
  int differs = 0;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    const int32_t answer = Ask(p.get(), f);
    EXPECT_EQ(answer, Ask(same.get(), f));
    EXPECT_EQ(Ask(exact.get(), f), 10000);
    differs += answer != Ask(other.get(), f);
    const double z = std::log(answer / 10000.0);
    sum += z;
    squares += z * z;
  }
  const double mean = sum / kDraws, deviation = std::sqrt(squares / kDraws - mean * mean);
  EXPECT_NEAR(mean, 0, 0.02);
  EXPECT_NEAR(deviation, 0.5, 0.02);
  EXPECT_GT(differs, kDraws / 2);
}

}  // namespace
}  // namespace tactus::core
