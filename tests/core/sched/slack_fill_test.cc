// AccelGen's steps and preemptions on whole engines over the fake executor: exact plans where they can be computed by
// hand, rules that must hold in every plan where they cannot. A line is one step; see LoggingExecutor.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <sstream>

#include "base/rng.h"
#include "core/sched/step_bed.h"

namespace tactus::slack_fill_test {
namespace {

using testing::AddRequest;
using testing::Harness;
using testing::HarnessConfig;
using testing::Plans;
using testing::PresetConfig;

constexpr DurationNs kMs = kMillisecond;
constexpr DurationNs kLoose = 3600 * kSecond;

HarnessConfig Config(const std::string& preset, int64_t budget) {
  HarnessConfig c = PresetConfig(preset, budget);
  c.scheduler.limits.policy.Find<DurationText>("accelgen-ttft")->ns =
      3600 * kSecond;  // requests without an objective are never urgent
  c.scheduler.limits.policy.Find<DurationText>("accelgen-tbt")->ns = 3600 * kSecond;
  *c.scheduler.limits.policy.Find<int64_t>("accelgen-long-prompt") = 10;
  c.executor.step_base_ns = kMs;
  c.executor.step_token_ns = 0;
  return c;
}

RequestHandle Add(Harness* h, int32_t prompt, int64_t max_tokens, Slo slo = {}) {
  return AddRequest(h, prompt, max_tokens, [&slo](Request* r) { r->slo = slo; });
}

// The plans of `submit`'s requests, which arrive together after a first step has set T_max to 1 ms and L_c to 1.
Plans PlansOf(const HarnessConfig& config, const std::function<void(Harness*)>& submit) {
  Harness h(config);
  Add(&h, 1, 1);
  EXPECT_EQ(h.Run(), "");
  submit(&h);
  EXPECT_EQ(h.Run(), "");
  return {h.plans().begin() + 1, h.plans().end()};
}

// Slots number the requests after the first, in order. With equal objectives the longer prompt has less slack.
TEST(SlackFill, TakesTheNearestInsteadOfTheFirst) {
  const auto submit = [](Harness* h) {
    for (const int32_t prompt : {4, 5, 3}) Add(h, prompt, 1);
  };
  // The prompt of 5 leaves 3 of 8 tokens, which the third fits exactly. In queue order the next is cut.
  EXPECT_EQ(PlansOf(Config("accelgen", 8), submit), (Plans{"1:0+5* 2:0+3*", "0:0+4*"}));
  EXPECT_EQ(PlansOf(Config("accelgen-no-batch", 8), submit), (Plans{"1:0+5* 0:0+3", "0:3+1* 2:0+3*"}));
  EXPECT_EQ(PlansOf(Config("accelgen-no-chunk", 8), submit), (Plans{"1:0+5* 2:0+3*", "0:0+4*"}));
}

// If no whole candidate fits, the rest goes to a chunk of the next in slack. In the second step both need 5 tokens, but
// the started one has a partly filled block: the other takes more of the free KV.
TEST(SlackFill, TheRestOfTheBudgetGoesToAShorterChunk) {
  EXPECT_EQ(PlansOf(Config("accelgen", 8),
                    [](Harness* h) {
                      for (const int32_t prompt : {5, 6, 7}) Add(h, prompt, 1);
                    }),
            (Plans{"2:0+7* 1:0+1", "0:0+5* 1:1+3", "1:4+2*"}));
}

// Only requests within gamma of the first are chosen by distance; the others follow.
TEST(SlackFill, GammaLimitsTheChoice) {
  const auto submit = [](Harness* h) {
    Add(h, 4, 1, {kLoose, 0, 0});
    Add(h, 8, 1, {kLoose + 740 * kMs, 0, 0});  // L_c is 1: T_e 4 and 8 ms
    Add(h, 6, 1, {kLoose + 900 * kMs, 0, 0});
  };
  EXPECT_EQ(PlansOf(Config("accelgen", 8), submit), (Plans{"1:0+8*", "0:0+4* 2:0+4", "2:4+2*"}));
  HarnessConfig narrow = Config("accelgen", 8);
  narrow.scheduler.limits.policy.Find<DurationText>("accelgen-gamma")->ns = 100 * kMillisecond;
  EXPECT_EQ(PlansOf(narrow, submit), (Plans{"0:0+4* 1:0+4", "1:4+4* 2:0+4", "2:4+2*"}));
}

// Whole prompts: one longer than the budget is the only prompt of its step, with the decodes.
TEST(SlackFill, AWholePromptMayExceedTheBudget) {
  EXPECT_EQ(PlansOf(Config("accelgen-no-chunk", 8),
                    [](Harness* h) {
                      Add(h, 3, 4);
                      Add(h, 30, 1);
                      Add(h, 2, 1);
                    }),
            (Plans{"0:0+3* 2:0+2*", "0:3+1* 1:0+30*", "0:4+1*", "0:5+1*"}));
}

// A second long prompt (>= 10) waits until the first has finished, its output included (completed); or its prefill
// (prefilled); or not at all (off); or only for KV (kv).
TEST(SlackFill, EraHoldsBackASecondLongPrompt) {
  const auto submit = [](Harness* h) {
    Add(h, 12, 3);
    Add(h, 11, 1);
    Add(h, 3, 1);
  };
  HarnessConfig c = Config("accelgen", 8);
  *c.scheduler.limits.policy.Find<std::string>("era") = "completed";
  EXPECT_EQ(PlansOf(c, submit), (Plans{"0:0+8", "0:8+4* 2:0+3*", "0:12+1*", "0:13+1*", "1:0+8", "1:8+3*"}));
  *c.scheduler.limits.policy.Find<std::string>("era") = "prefilled";
  EXPECT_EQ(PlansOf(c, submit), (Plans{"0:0+8", "0:8+4* 2:0+3*", "0:12+1* 1:0+7", "0:13+1* 1:7+4*"}));
  for (const char* era : {"off", "kv"}) {  // KV suffices for all of them
    *c.scheduler.limits.policy.Find<std::string>("era") = era;
    EXPECT_EQ(PlansOf(c, submit), (Plans{"0:0+8", "1:0+8", "0:8+4* 1:8+3* 2:0+1", "0:12+1* 2:1+2*", "0:13+1*"})) << era;
  }
}

// An urgent long prompt does not wait for another.
TEST(SlackFill, AnUrgentLongPromptDoesNotWait) {
  HarnessConfig c = Config("accelgen", 8);
  *c.scheduler.limits.policy.Find<std::string>("era") = "completed";
  EXPECT_EQ(PlansOf(c,
                    [](Harness* h) {
                      Add(h, 12, 3);
                      Add(h, 11, 1, {10 * kMs, 0, 0});  // needs 11 steps of 1 ms by its window
                    }),
            (Plans{"1:0+8", "1:8+3*", "0:0+8", "0:8+4*", "0:12+1*", "0:13+1*"}));
}

// Urgent requests first, in ascending slack, ahead of the decodes; short of budget a decode sits out and keeps its KV,
// until it is urgent itself: then its token is reserved. So it is in the second step, since it is not known that 8
// tokens take no longer than the 4 of the first.
TEST(SlackFill, DecodesSitOutForUrgentPromptsUntilTheyAreUrgent) {
  HarnessConfig c = Config("accelgen", 8);
  c.max_model_len = 60;
  Harness h(c);
  const RequestHandle loose = Add(&h, 2, 6);
  const RequestHandle tight = Add(&h, 2, 6, {0, 3 * kMs, 0});
  ASSERT_EQ(h.Settle(), "");
  ASSERT_TRUE(h.Advance());
  Add(&h, 40, 1, {6 * kMs, 0, 0});  // at once late by its window, and computed by its due time
  ASSERT_EQ(h.Run(), "");
  // T_max = 1 ms: the tight one has 3 - 1 = 2 ms to wait after a token, and is urgent after the first ms.
  EXPECT_EQ(h.plans(), (Plans{"0:0+2* 1:0+2*", "2:0+7 1:2+1*", "2:7+8", "2:15+7 1:3+1*", "2:22+8", "2:30+7 1:4+1*",
                              "2:37+3* 1:5+1* 0:2+1*", "1:6+1* 0:3+1*", "0:4+1*", "0:5+1*", "0:6+1*"}));
  EXPECT_EQ(h.loop().Stats().preemptions, 0);
  for (const RequestHandle handle : {loose, tight}) EXPECT_EQ(h.outputs()[handle].choices[0].tokens.size(), 6u);
}

// As published. Eight blocks of four, and the urgent prompt is short of KV: the decode with the most slack loses its
// KV, and waits until there is room for all that it has to compute again.
TEST(SlackFill, AnUrgentPromptTakesKvFromTheMostSlack) {
  HarnessConfig c = Config("accelgen-paper", 17);
  c.num_blocks = 8;
  c.max_model_len = 32;
  Harness h(c);
  const RequestHandle most = Add(&h, 8, 8, {0, 1000 * kSecond, 0});
  const RequestHandle less = Add(&h, 8, 8, {0, 500 * kSecond, 0});
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(h.Settle(), "");
    ASSERT_TRUE(h.Advance());
  }
  ASSERT_EQ(h.kv().blocks_available(), 2);
  Add(&h, 16, 3, {2 * kMs + kMs / 2, 0, 0});  // L_c = 8: two chunks of 1 ms, half a ms left: urgent, and not late
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.outputs()[most].done_event.preemptions, 1);
  EXPECT_EQ(h.outputs()[less].done_event.preemptions, 0);
  EXPECT_EQ(h.plans()[3], "!0 2:0+16* 1:10+1*");
  EXPECT_EQ(h.plans()[4], "1:11+1* 2:16+1*");
}

// The same prompt, already late: it takes no KV, and waits until it fits beside the running sequences.
TEST(SlackFill, ALatePromptTakesNoKv) {
  HarnessConfig c = Config("accelgen", 17);
  c.num_blocks = 8;
  c.max_model_len = 32;
  Harness h(c);
  Add(&h, 8, 8, {0, 1000 * kSecond, 0});
  Add(&h, 8, 8, {0, 500 * kSecond, 0});
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(h.Settle(), "");
    ASSERT_TRUE(h.Advance());
  }
  Add(&h, 16, 3, {kMs, 0, 0});
  ASSERT_EQ(h.Settle(), "");
  EXPECT_EQ(h.plans()[3], "1:10+1* 0:10+1*");
  ASSERT_EQ(h.Run(), "");
  EXPECT_EQ(h.loop().Stats().preemptions, 0);
  EXPECT_EQ(h.plans()[8], "2:0+16*");
}

struct Played {
  std::vector<RequestHandle> handles;
  std::map<RequestHandle, testing::RequestOutput> outputs;
  Plans plans;
  int64_t preemptions = 0;
};

// Random requests with objectives of every kind and little memory.
Played PlayRandom(uint64_t seed, const std::string& preset, std::string* broken) {
  Rng rng(seed);
  HarnessConfig c = Config(preset, std::vector<int64_t>{4, 16, 64}[static_cast<size_t>(rng.UniformInt(0, 2))]);
  c.num_blocks = rng.UniformInt(12, 40);
  c.max_model_len = 48;
  c.prefix_caching = seed % 2 == 0;
  c.executor.step_token_ns = 100 * kMicrosecond;
  Harness h(c);
  for (int i = 0; i < 30 && broken->empty(); ++i) {
    Slo slo;
    if (rng.Uniform() < 0.7) slo.ttft_ns = rng.UniformInt(1, 30) * kMs;
    if (rng.Uniform() < 0.7) slo.tbt_ns = rng.UniformInt(1, 10) * kMs;
    if (rng.Uniform() < 0.2) slo.jct_ns = rng.UniformInt(10, 200) * kMs;
    const auto prompt = static_cast<int32_t>(rng.UniformInt(1, 30));
    Add(&h, prompt, rng.UniformInt(1, 48 - prompt), slo);
    *broken = h.Settle();
    if (rng.Uniform() < 0.6) h.Advance();
  }
  if (broken->empty()) *broken = h.Run();
  return {h.handles(), h.outputs(), h.plans(), h.loop().Stats().preemptions};
}

TEST(SlackFill, EveryAdmissionYieldsATokenBeforeTheNextPreemption) {
  int64_t preemptions = 0;
  for (const char* preset : {"accelgen", "accelgen-no-chunk", "accelgen-no-order", "accelgen-no-batch"}) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      std::string broken;
      const Played played = PlayRandom(seed, preset, &broken);
      ASSERT_EQ(broken, "") << preset << " seed " << seed;
      preemptions += played.preemptions;
      struct Life {
        bool preempted = false, earned = false;
      };
      std::map<int, Life> lives;  // by slot; a sequence ends with a token earned, so its slot's next starts afresh
      for (const std::string& plan : played.plans) {
        std::istringstream words(plan);
        for (std::string word; words >> word;) {
          if (word[0] == 'c') continue;
          Life& life = lives[std::stoi(word.substr(word[0] == '!' ? 1 : 0))];
          if (word[0] == '!') {
            ASSERT_TRUE(!life.preempted || life.earned) << preset << " seed " << seed << ": " << plan;
            life = {true, false};
          } else if (word.back() == '*') {
            life.earned = true;
          }
        }
      }
    }
  }
  EXPECT_GT(preemptions, 500);
}

// An endless stream of tight requests, more than the machine can serve. The loose one is passed over by those that
// arrive until its objective (and the longest prompt's time) has passed, and by none that arrive later.
TEST(SlackFill, ALooseRequestIsPassedOverForABoundedTime) {
  for (const char* preset : {"accelgen", "accelgen-no-chunk", "accelgen-no-batch"}) {
    HarnessConfig c = Config(preset, 8);
    c.max_queue = 1000;
    c.num_blocks = 400;
    c.executor.step_token_ns = 0;
    Harness h(c);
    std::map<RequestHandle, TimeNs> arrival;
    for (int i = 0; i < 30; ++i) arrival[Add(&h, 6, 1, {4 * kMs, 0, 0})] = h.clock().NowNs();
    const DurationNs objective = 60 * kMs;
    const RequestHandle loose = Add(&h, 6, 1, {objective, 0, 0});
    const TimeNs came = h.clock().NowNs();
    for (int step = 0; step < 300; ++step) {
      for (int i = 0; i < 2; ++i) arrival[Add(&h, 6, 1, {4 * kMs, 0, 0})] = h.clock().NowNs();
      ASSERT_EQ(h.Settle(), "");
      ASSERT_TRUE(h.Advance());
    }
    ASSERT_TRUE(h.outputs()[loose].done) << preset;
    const TimeNs started = h.outputs()[loose].done_event.scheduled_ns;
    EXPECT_GT(started, came + objective / 2) << preset << ": the load is too small for it to wait";
    const DurationNs longest = 6 * kMs;  // at most six chunks of a step each
    int later = 0;
    for (const auto& [handle, at] : arrival) {
      if (at <= came + objective + longest) continue;
      ++later;
      const testing::RequestOutput& out = h.outputs()[handle];
      if (out.done) {
        EXPECT_GE(out.done_event.scheduled_ns, started) << preset;
      }
    }
    EXPECT_GT(later, 50);
  }
}

// An endless stream of requests that can be kept, more than the machine can serve. Missed ones wait behind them, but no
// longer than the turns of those before them.
TEST(SlackFill, AMissedPromptWaitsForABoundedTime) {
  constexpr int kTurn = 8;
  for (const char* preset : {"accelgen", "accelgen-no-chunk", "accelgen-no-batch"}) {
    HarnessConfig c = Config(preset, 8);
    *c.scheduler.limits.policy.Find<int64_t>("accelgen-missed-turn") = kTurn;
    c.max_queue = 1000;
    c.num_blocks = 400;
    Harness h(c);
    std::vector<RequestHandle> missed;
    for (int i = 0; i < 6; ++i) missed.push_back(Add(&h, 8, 1, {1, 0, 0}));  // the first of them starts in time
    const TimeNs came = h.clock().NowNs();
    for (int step = 0; step < 12 * kTurn; ++step) {
      for (int i = 0; i < 2; ++i) Add(&h, 6, 1, {kLoose, 0, 0});
      ASSERT_EQ(h.Settle(), "");
      ASSERT_TRUE(h.Advance());
    }
    for (int i = 1; i < 6; ++i) {
      const testing::RequestOutput& out = h.outputs()[missed[static_cast<size_t>(i)]];
      ASSERT_TRUE(out.done) << preset << ": request " << i << " starves";
      const int64_t waited = (out.done_event.scheduled_ns - came) / kMs;
      EXPECT_GE(waited, i * kTurn) << preset << ": it goes before those that can be kept";
      EXPECT_LE(waited, i * (kTurn + 1)) << preset;
    }
  }
}

// Makes a fresh instance of every policy before each pass: all their state is in the view.
TEST(SlackFill, AFreshInstanceMakesTheSamePlansWithObjectives) {
  for (const char* preset : {"accelgen", "accelgen-no-chunk", "accelgen-no-order", "accelgen-no-batch"}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      std::vector<std::vector<uint64_t>> hashes;
      for (const bool fresh : {false, true}) {
        Rng rng(seed);
        HarnessConfig c = Config(preset, 16);
        c.num_blocks = 20;
        c.max_model_len = 48;
        c.fresh_policies = fresh;
        c.executor.max_in_flight = seed % 3 == 0 ? 2 : 1;
        Harness h(c);
        for (int i = 0; i < 25; ++i) {
          Add(&h, static_cast<int32_t>(rng.UniformInt(1, 24)), rng.UniformInt(1, 20),
              {rng.UniformInt(0, 20) * kMs, rng.UniformInt(0, 6) * kMs, rng.UniformInt(0, 3) * 40 * kMs});
          ASSERT_EQ(h.Settle(), "");
          if (rng.Uniform() < 0.5) h.Advance();
        }
        ASSERT_EQ(h.Run(), "");
        hashes.push_back(*h.loop().plan_hashes());
      }
      EXPECT_EQ(hashes[0], hashes[1]) << preset << " seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tactus::slack_fill_test
