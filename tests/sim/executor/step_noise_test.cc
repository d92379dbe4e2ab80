#include "sim/executor/step_noise.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "core/trace/replay.h"
#include "sim/linear_model.h"
#include "sim/sim_options.h"
#include "sim/simulator/run_many.h"

namespace tactus::sim {
namespace {

struct Moments {
  double median = 0, deviation = 0, p10 = 0, p90 = 0;  // of ln(factor); the percentiles are of the factor
};

Moments Of(const StepNoise& noise, bool has_prompt, int steps) {
  std::vector<double> logs;
  double sum = 0, squares = 0;
  for (StepId step = 0; step < steps; ++step) {
    logs.push_back(std::log(noise.FactorOf(step, has_prompt)));
    sum += logs.back(), squares += logs.back() * logs.back();
  }
  std::sort(logs.begin(), logs.end());
  const auto at = [&](double q) { return logs[static_cast<size_t>(q * steps)]; };
  return {at(0.5), std::sqrt(squares / steps - sum / steps * sum / steps), std::exp(at(0.1)), std::exp(at(0.9))};
}

TEST(StepNoise, FactorsHaveMedianOneAndTheSpreadOfTheStepsKind) {
  const StepNoise noise({.with_prompts = 0.2, .decodes_only = 0.1}, 5, 0);
  const Moments prompts = Of(noise, true, 40000), decodes = Of(noise, false, 40000);
  EXPECT_NEAR(prompts.median, 0, 0.004);
  EXPECT_NEAR(prompts.deviation, 0.2, 0.003);
  EXPECT_NEAR(prompts.p10, std::exp(-0.2 * 1.28155), 0.006);
  EXPECT_NEAR(prompts.p90, std::exp(0.2 * 1.28155), 0.009);
  EXPECT_NEAR(decodes.median, 0, 0.002);
  EXPECT_NEAR(decodes.deviation, 0.1, 0.0015);
}

TEST(StepNoise, FactorsDependOnSeedReplicaAndStepOnly) {
  const cost::StepSpread spread{0.2, 0.2};
  const StepNoise noise(spread, 5, 0), again(spread, 5, 0), other_seed(spread, 6, 0), other_replica(spread, 5, 1);
  int same = 0;
  for (StepId step = 99; step >= 0; --step) {  // in any order and number
    EXPECT_EQ(noise.FactorOf(step, step % 3 == 0), again.FactorOf(step, step % 3 == 0));
    EXPECT_EQ(noise.FactorOf(step, true), noise.FactorOf(step, false))
        << "the kind of step selects the spread, not the draw";
    for (const StepNoise* other : {&other_seed, &other_replica})
      same += other->FactorOf(step, true) == noise.FactorOf(step, true);
    same += noise.FactorOf(step, true) == noise.FactorOf(step + 1, true);
  }
  EXPECT_EQ(same, 0);
}

TEST(StepNoise, WithoutSpreadEveryFactorIsOne) {
  const StepNoise none, half({.with_prompts = 0.3, .decodes_only = 0}, 5, 0);
  for (StepId step = 0; step < 100; ++step) {
    EXPECT_EQ(none.FactorOf(step, step % 2 == 0), 1);
    EXPECT_EQ(half.FactorOf(step, false), 1);
  }
  EXPECT_NE(half.FactorOf(0, true), 1);
}

// Draws of neighbouring steps are independent.
TEST(StepNoise, FactorsOfNeighbouringStepsAreIndependent) {
  const StepNoise noise({.with_prompts = 1, .decodes_only = 1}, 5, 0);
  double product = 0;
  constexpr int kSteps = 20000;
  for (StepId step = 0; step < kSteps; ++step)
    product += std::log(noise.FactorOf(step, true)) * std::log(noise.FactorOf(step + 1, true));
  EXPECT_NEAR(product / kSteps, 0, 0.03);
}

TEST(StepNoise, ParsesTheOptionsValues) {
  EXPECT_EQ(*ParseStepNoise("none", nullptr, "auto"), cost::StepSpread());
  for (const char* text : {"0", "0%"}) EXPECT_EQ(*ParseStepNoise(text, nullptr, "auto"), cost::StepSpread()) << text;
  EXPECT_EQ(*ParseStepNoise("12.5", nullptr, "auto"), (cost::StepSpread{0.125, 0.125}));
  EXPECT_EQ(*ParseStepNoise("100%", nullptr, "auto"), (cost::StepSpread{1, 1}));
  for (const char* wrong : {"-1", "100.1", "1e9", "nan", "inf", "", "%", "ten", "10 %", "10%%", "None", "0x10"}) {
    const auto parsed = ParseStepNoise(wrong, nullptr, "auto");
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(parsed.status().param(), "step-noise");
    EXPECT_EQ(parsed.status().message(),
              "--step-noise is '" + std::string(wrong) +
                  "'; it must be none, profile or a percentage between 0 and 100, such as 10");
  }
}

// --- Whole simulations ---

// 2 ms, 50 us per prompt token, 0.1 ms per decode, independent of contexts.
std::string WriteProfile(const std::string& remarks) {
  const std::string path = testing::TempDir() + "step_noise_test.csv";
  std::ofstream out(path);
  out << remarks << "prefill_tokens,prefill_context,decodes,decode_context_tokens,step_ms\n";
  for (int tokens = 0; tokens <= 512; tokens += 64) {
    for (int decodes = 0; decodes <= 32; decodes += 8) {
      for (int context = 0; context <= 1500 && tokens + decodes > 0; context += tokens > 0 ? 500 : 2000) {
        out << tokens << ',' << context << ',' << decodes << ',' << decodes * 500 << ','
            << 2 + 0.05 * tokens + 0.1 * decodes << '\n';
      }
    }
  }
  return path;
}

constexpr char kNoted[] = "# spread of steps with prompts: 0.2\n# spread of steps of decodes only: 0.1\n";

SimOptions OverProfile(const std::string& remarks) {
  SimOptions o;
  o.cost = WriteProfile(remarks);
  o.workload = "random:in=256,out=32";
  o.rate = 20;
  o.requests = 300;
  o.max_model_len = 2048;
  o.kv_blocks = 4000;
  o.seed = 3;
  return o;
}

TEST(StepNoise, ProfileNoiseUsesTheProfilesSpread) {
  SimOptions o = OverProfile(kNoted);
  EXPECT_EQ(SetUpSimulation(o, {})->config.step_spread, cost::StepSpread()) << "none is the default";
  o.step_noise = "profile";
  const auto setup = SetUpSimulation(o, {});
  ASSERT_TRUE(setup.ok()) << setup.status().ToString();
  EXPECT_EQ(setup->config.step_spread, (cost::StepSpread{0.2, 0.1}));
  EXPECT_TRUE(std::any_of(setup->notes.begin(), setup->notes.end(), [](const std::string& note) {
    return note.find("vary by 20.0 % with prompts, 10.0 % without") != std::string::npos;
  }));
  const auto message = [](const SimOptions& options) {
    const Status status = SetUpSimulation(options, {}).status();
    EXPECT_EQ(status.param(), "step-noise") << status.ToString();
    return status.message();
  };
  SimOptions silent = OverProfile("# model: m\n");
  silent.step_noise = "profile";
  EXPECT_NE(message(silent).find(silent.cost + "' has no variation of single steps; measure again with 'tactus "
                                               "profile', or give a percentage"),
            std::string::npos)
      << message(silent);
  SimOptions broken = OverProfile("# spread of steps with prompts: 7\n# spread of steps of decodes only: 0.1\n");
  broken.step_noise = "profile";
  EXPECT_NE(message(broken).find("is '7', but a spread is a number between 0 and 1; measure again"), std::string::npos)
      << message(broken);
  SimOptions model;
  model.model = "llama-3.1-8b", model.device = "h100", model.workload = "chat", model.rate = 5;
  model.step_noise = "profile";
  EXPECT_NE(message(model).find("--cost auto, which is not a measured profile; give a file"), std::string::npos)
      << message(model);
  model.step_noise = "10";
  EXPECT_EQ(SetUpSimulation(model, {})->config.step_spread, (cost::StepSpread{0.1, 0.1}));
}

struct Ran {
  std::string result;
  uint64_t plan_hash = 0;
  double attainment = 0, correction = 0;
  std::vector<std::pair<int64_t, DurationNs>> steps;  // tokens, time
  bool operator==(const Ran& o) const { return result == o.result && plan_hash == o.plan_hash && steps == o.steps; }
};

Ran Simulate(const SimOptions& o, const SimTexts& texts = {}) {
  auto setup = SetUpSimulation(o, texts);
  EXPECT_TRUE(setup.ok()) << setup.status().ToString();
  Ran ran;
  setup->config.on_step = [&](int32_t, const StepPlan& plan, TimeNs start, TimeNs end) {
    ran.steps.emplace_back(plan.num_tokens, end - start);
  };
  auto sim = Simulation::Create(setup->config, setup->workload.get());
  EXPECT_TRUE(sim.ok()) << sim.status().ToString();
  EXPECT_TRUE((*sim)->Run().ok());
  ran.result = ToJson((*sim)->Outcome());
  ran.plan_hash = (*sim)->plan_hashes()[0];
  ran.correction = (*sim)->Stats().step_time_correction;
  const auto json = SortedJson::parse(ran.result);
  if (json["slo_attainment"].is_number()) ran.attainment = json["slo_attainment"];
  return ran;
}

TEST(StepNoise, WithoutNoiseNothingChangesAndRunsDependOnTheSeed) {
  SimOptions o = OverProfile(kNoted);
  const Ran plain = Simulate(o);
  EXPECT_EQ(plain.correction, 1);
  o.step_noise = "none";
  EXPECT_EQ(Simulate(o), plain);
  o.step_noise = "0%";
  EXPECT_EQ(Simulate(o), plain);
  o.step_noise = "profile";
  const Ran noisy = Simulate(o);
  EXPECT_NE(noisy.plan_hash, plain.plan_hash);
  EXPECT_EQ(Simulate(o), noisy);
  o.seed = 4;
  EXPECT_FALSE(Simulate(o) == noisy);
}

// Steps filled exactly to an objective meet it if their times are as predicted, and miss it half of the time if they
// vary.
TEST(StepNoise, StepsFilledToAnObjectiveMissIt) {
  SimOptions o = OverProfile(kNoted);
  o.scheduler = "sarathi-serve";
  o.workload = "random:in=1500,out=32";
  o.rate = 8;
  o.tbt_slo.ns = 20 * kMillisecond;
  const SimTexts texts{.slo = {.tbt_ns = 20 * kMillisecond}};
  const Ran exact = Simulate(o, texts);
  EXPECT_GT(exact.attainment, 0.95);
  o.step_noise = "profile";
  EXPECT_LT(Simulate(o, texts).attainment, 0.5);
}

// Until a step has ended, plans are the same as without noise: no factor is known in advance. Afterwards results
// correct the step times that policies use, as in a server.
TEST(StepNoise, PoliciesLearnNoiseOnlyFromResults) {
  for (const int64_t seed : {1, 2, 3, 4, 5, 6}) {
    SimOptions o = OverProfile(kNoted);
    o.workload = "random:in=1500,out=32";
    o.rate = 0;
    o.concurrency = 8;
    o.requests = 8;
    o.tbt_slo.ns = 20 * kMillisecond;
    o.seed = seed;
    const Ran exact = Simulate(o);
    o.step_noise = "60";
    const Ran noisy = Simulate(o);
    ASSERT_FALSE(exact.steps.empty() || noisy.steps.empty());
    EXPECT_EQ(noisy.steps[0].first, exact.steps[0].first) << "seed " << seed;
    EXPECT_NE(noisy.steps[0].second, exact.steps[0].second) << "seed " << seed;
    EXPECT_NE(noisy.correction, 1) << "seed " << seed;
  }
}

TEST(StepNoise, ARecordingOfStepsThatVaryReplays) {
  SimOptions o = OverProfile(kNoted);
  o.step_noise = "profile";
  o.tbt_slo.ns = 20 * kMillisecond;
  o.trace_out = testing::TempDir() + "step_noise_test.trace";
  const Ran noisy = Simulate(o);
  const auto replay = core::ReplayTrace(o.trace_out);
  std::remove(o.trace_out.c_str());
  ASSERT_TRUE(replay.ok()) << replay.status().ToString();
  EXPECT_TRUE(replay->identical() && replay->complete) << "differs at " << replay->first_difference;
  EXPECT_EQ(replay->plan_hash_replayed, noisy.plan_hash);
}

// The time of each replica's first step, with the same prompt at the same time; only the noise depends on `noise_seed`.
std::vector<DurationNs> FirstSteps(uint64_t noise_seed) {
  SimOptions o = OverProfile(kNoted);
  o.step_noise = "profile";
  o.replicas = 2;
  o.rate = 0;
  o.concurrency = 2;
  o.requests = 2;
  auto setup = SetUpSimulation(o, {});
  EXPECT_TRUE(setup.ok()) << setup.status().ToString();
  setup->config.seed = noise_seed;
  std::vector<DurationNs> first;
  setup->config.on_step = [&](int32_t, const StepPlan& plan, TimeNs start, TimeNs end) {
    if (plan.step == 0) first.push_back(end - start);
  };
  auto sim = Simulation::Create(setup->config, setup->workload.get());
  EXPECT_TRUE(sim.ok() && (*sim)->Run().ok());
  EXPECT_EQ(first.size(), 2u);
  return first;
}

TEST(StepNoise, EachReplicaHasItsOwnNoiseBySeed) {
  const std::vector<DurationNs> one = FirstSteps(1), two = FirstSteps(2);
  EXPECT_NE(one[0], one[1]);
  EXPECT_NE(one[0], two[0]);
  EXPECT_EQ(one, FirstSteps(1));
}

}  // namespace
}  // namespace tactus::sim
