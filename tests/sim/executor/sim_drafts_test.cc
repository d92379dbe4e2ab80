// Drafts in simulation: the engine's decisions about speculation, with an executor of known acceptance.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "core/trace/replay.h"
#include "sim/executor/sim_drafts.h"
#include "sim/linear_model.h"
#include "sim/simulator/simulator.h"

namespace tactus::sim_drafts_test {
namespace {

// Reading weights takes 8 ms in any step; a token takes 1 ms.
struct Device final : StepTimeModel {
  DurationNs StepTimeNs(const StepShape& s) const override {
    return std::max<DurationNs>(8 * kMillisecond, s.tokens() * kMillisecond);
  }
};

struct Simulated {
  EngineStats stats;
  double seconds = 0;
  int64_t most_drafts = 0;  // per step
};

Simulated Simulate(int64_t concurrency, double acceptance, const std::string& trace = {}) {
  static const Device device;
  sim::SimulationConfig c;
  c.step_time = &device;
  c.scheduler.preset = "sarathi-serve";
  c.scheduler.limits.max_num_seqs = 64;
  c.scheduler.limits.max_model_len = 4096;
  c.scheduler.limits.blocks_total = 20000;
  c.scheduler.limits.block_size = 16;
  c.concurrency = concurrency;
  c.draft_tokens = 16;
  c.draft_acceptance = acceptance;
  c.seed = 3;
  c.trace_out = trace;
  Simulated run;
  c.on_step = [&run](int32_t, const StepPlan& plan, TimeNs, TimeNs) {
    run.most_drafts = std::max(run.most_drafts, plan.draft_tokens);
  };
  auto spec = sim::ParseWorkload("random:in=20,out=200");
  auto arrivals = sim::ParseArrivals("poisson", 0);
  auto stream = sim::WorkloadStream::Open(*spec, *arrivals, 4 * concurrency, 1);
  EXPECT_TRUE(stream.ok()) << stream.status().ToString();
  auto sim = sim::Simulation::Create(c, stream->get());
  EXPECT_TRUE(sim.ok()) << sim.status().ToString();
  EXPECT_TRUE((*sim)->Run().ok());
  EXPECT_TRUE((*sim)->finished());
  const RunResult result = (*sim)->Outcome();
  EXPECT_EQ(result.completed, 4 * concurrency);
  EXPECT_EQ(result.output_tokens, 4 * concurrency * 200);
  run.stats = (*sim)->Stats();
  run.seconds = result.duration_s;
  return run;
}

TEST(SimDrafts, OneStreamSpeedsUpByItsAcceptedDrafts) {
  const Simulated plain = Simulate(1, 0), guessed = Simulate(1, 0.7);
  EXPECT_EQ(plain.stats.ngram_drafts.draft_tokens, 0);
  const DraftCounts& counts = guessed.stats.ngram_drafts;
  // Seven drafts cost nothing: 0.7 + 0.7^2 + ... + 0.7^7 tokens per step are accepted.
  const double expected = 0.7 * (1 - std::pow(0.7, 7)) / 0.3;
  EXPECT_NEAR(static_cast<double>(counts.accepted_tokens) / static_cast<double>(counts.drafts), expected, 0.25);
  EXPECT_EQ(guessed.most_drafts, 7);
  EXPECT_NEAR(plain.seconds / guessed.seconds, 1 + expected, 0.3);
}

// Certain drafts are always verified; others are weighed by cost, however likely.
TEST(SimDrafts, OnlyGrammarDraftsAreCertain) {
  sim::SimDrafts drafts(core::DraftKind::kModel, 4, 0.9999);
  std::vector<TokenId> guesses;
  core::DraftTask task{.slot = 0, .most = 4, .tokens = &guesses};
  drafts.Propose({&task, 1});
  EXPECT_EQ(guesses.size(), 4u);
  EXPECT_EQ(task.chance, core::kSureDraft - 1);
}

TEST(SimDrafts, UnderLoadThereAreNoDrafts) {
  const Simulated plain = Simulate(16, 0), guessed = Simulate(16, 0.7);
  EXPECT_LT(guessed.seconds, plain.seconds * 1.0001);
  // Drafts appear only as the load ends.
  EXPECT_LT(guessed.stats.ngram_drafts.draft_tokens, guessed.stats.generation_tokens / 5);
}

TEST(SimDrafts, ARecordingReplaysToTheSamePlans) {
  const std::string path = ::testing::TempDir() + "tactus_sim_drafts_" + std::to_string(getpid()) + ".trace";
  const Simulated run = Simulate(3, 0.6, path);
  const auto report = core::ReplayTrace(path);
  std::remove(path.c_str());
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report->identical()) << "the first step that differs is " << report->first_difference;
  EXPECT_EQ(report->stats.ngram_drafts.accepted_tokens, run.stats.ngram_drafts.accepted_tokens);
  EXPECT_GT(run.stats.ngram_drafts.accepted_tokens, 100);
}

}  // namespace
}  // namespace tactus::sim_drafts_test
