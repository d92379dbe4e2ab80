#include "sim/oracle/oracle.h"

#include <gtest/gtest.h>

#include "sim/linear_model.h"
#include "sim/workload/trace_file.h"

namespace tactus::sim {
namespace {

// Repeated bursts of long prompts just before short ones with a tight objective: the order decides whether they meet
// it.
WorkloadSpec Bursts() {
  std::string text = "arrival_s,prompt_tokens,output_tokens\n";
  for (int i = 0; i < 12; ++i) {
    const std::string at = std::to_string(i) + ".0";
    text += at + ",2000,20\n" + at + ",1800,20\n" + at + ",100,20\n" + at + ",120,20\n";
  }
  WorkloadSpec spec;
  spec.kind = WorkloadSpec::Kind::kTrace;
  spec.text = spec.file = "bursts.csv";
  spec.rows = *TraceFile::Parse("bursts.csv", text);
  return spec;
}

SimulationJob Job(const StepTimeModel& model) {
  SimulationJob job;
  job.config.step_time = &model;
  job.config.scheduler.limits.max_num_seqs = 8;
  job.config.scheduler.limits.max_model_len = 4096;
  job.config.scheduler.limits.blocks_total = 1000;
  job.config.slo.ttft_ns = 30 * kMillisecond;
  job.config.swap_blocks = 100;
  job.open = [] { return WorkloadStream::Open(Bursts(), {}, 0, 1); };
  return job;
}

OracleResult Checked(Result<OracleResult> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return result.ok() ? *std::move(result) : OracleResult();
}

TEST(Oracle, IsAtLeastAsGoodAsEveryPresetAndTheSameOnAnyNumberOfThreads) {
  LinearModel model;
  OracleOptions options;
  options.swaps = 40;
  const auto one = Checked(RunOracle(Job(model), options));
  options.threads = 3;
  const auto three = Checked(RunOracle(Job(model), options));
  EXPECT_EQ(one.run.engine->plan_hash, three.run.engine->plan_hash);
  EXPECT_EQ(one.from, three.from);
  EXPECT_EQ(one.presets, three.presets);
  EXPECT_EQ(one.swaps_kept, three.swaps_kept);
  const double goodput = *one.run.goodput();
  double fcfs = 0;
  EXPECT_EQ(one.presets.size(), core::Presets().size());
  for (const auto& [name, value] : one.presets) {
    ASSERT_TRUE(value.has_value()) << name;
    EXPECT_GE(goodput, *value) << name;
    if (name == "sarathi-serve") fcfs = *value;
  }
  // By hand: short before long meets the short ones' objective in every burst, first come first served in none.
  EXPECT_GT(goodput, 1.5 * fcfs);
  EXPECT_EQ(one.swaps_tried, 40);
}

// One sequence at a time: only the first of a burst meets the objective, so the short ones must come first.
TEST(Oracle, TheSearchFindsTheOrderThatMeetsTheObjective) {
  LinearModel model;
  SimulationJob job = Job(model);
  job.config.scheduler.limits.max_num_seqs = 1;
  job.config.slo = {};
  job.config.slo.jct_ns = 40 * kMillisecond;
  job.config.concurrency = 0;
  const auto result = Checked(RunOracle(job, {.swaps = 200, .threads = 1}));
  // A short request alone takes 2 ms for its prompt and 19 decodes of 1.1 ms: the first of each burst meets 40 ms, a
  // long one never.
  EXPECT_GE(result.run.classes.at("").kept, 12);
  EXPECT_EQ(result.run.completed, 48);
}

TEST(Oracle, ExcludedPresetsAreNotTried) {
  LinearModel model;
  const auto all = Checked(RunOracle(Job(model), {.swaps = 0, .threads = 1}));
  const std::string best = all.from.starts_with("preset ") ? all.from.substr(7) : "tactus";
  const auto without = Checked(RunOracle(Job(model), {.without = {best, "vllm"}, .swaps = 0, .threads = 1}));
  EXPECT_EQ(without.presets.size(), core::Presets().size() - 2);
  for (const auto& [name, value] : without.presets) {
    EXPECT_NE(name, best);
    EXPECT_NE(name, "vllm");
  }
  EXPECT_NE(without.from, "preset " + best);
}

TEST(Oracle, UnknownExcludedPresetsAreErrors) {
  EXPECT_EQ(*ParseOracleWithout(""), std::vector<std::string>());
  EXPECT_EQ(*ParseOracleWithout("tactus,accelgen,tactus"), (std::vector<std::string>{"tactus", "accelgen"}));
  const Status unknown = ParseOracleWithout("tactus,larri").status();
  EXPECT_EQ(unknown.param(), "oracle-without");
  EXPECT_NE(unknown.message().find("'larri'"), std::string::npos) << unknown.message();
  EXPECT_NE(unknown.message().find("larry, "), std::string::npos) << unknown.message();
  EXPECT_FALSE(ParseOracleWithout("tactus,").ok());
  std::string every;
  for (const core::PresetInfo& preset : core::Presets()) every += std::string(every.empty() ? "" : ",") + preset.name;
  EXPECT_EQ(ParseOracleWithout(every).status().param(), "oracle-without");
}

TEST(Oracle, ReportsWhyThereIsNoBound) {
  LinearModel model;
  const OracleOptions quick{.swaps = 0, .threads = 1};
  EXPECT_TRUE(Checked(RunOracle(Job(model), quick)).most_kept.has_value());
  const auto why = [&](const std::function<void(SimulationJob*)>& change) {
    SimulationJob job = Job(model);
    change(&job);
    const OracleResult result = Checked(RunOracle(job, quick));
    EXPECT_FALSE(result.most_kept.has_value());
    return result.unbounded;
  };
  EXPECT_NE(why([](SimulationJob* job) { job->config.slo = {}; }).find("objective"), std::string::npos);
  EXPECT_NE(why([](SimulationJob* job) { job->config.concurrency = 4; }).find("arrivals"), std::string::npos);
  EXPECT_NE(why([](SimulationJob* job) { job->config.step_spread.decodes_only = 0.1; }).find("--step-noise"),
            std::string::npos);
  EXPECT_NE(why([](SimulationJob* job) { job->config.warmup.requests = 1; }).find("--warmup"), std::string::npos);
}

TEST(Oracle, ReportsWhyNothingRunsAndInterruption) {
  LinearModel model;
  SimulationJob job = Job(model);
  job.config.balancer = "nosuch";
  EXPECT_EQ(RunOracle(job, {}).status().param(), "balancer");
  EXPECT_EQ(RunOracle(Job(model), {}, [](const OracleProgress&) { return false; }).status().code(),
            StatusCode::kCancelled);
  int64_t asked = 0;
  const auto some = Checked(RunOracle(Job(model), {}, [&](const OracleProgress& p) {
    ++asked;
    return p.runs < 100;
  }));
  EXPECT_LT(some.swaps_tried, 200);
  EXPECT_GT(asked, 50);
  EXPECT_FALSE(some.most_kept.has_value());
  EXPECT_EQ(some.unbounded, "the search was stopped");
}

TEST(Oracle, TheBoundReportsProgressAndCanBeStopped) {
  LinearModel model;
  const OracleOptions quick{.swaps = 0, .threads = 1};
  int64_t in_bound = 0, most_rounds = 0, runs = 0, total = 0;
  const auto whole = Checked(RunOracle(Job(model), quick, [&](const OracleProgress& p) {
    in_bound += p.bound.most_rounds > 0;
    most_rounds = p.bound.most_rounds;
    runs = p.runs;
    total = p.total;
    return true;
  }));
  EXPECT_TRUE(whole.most_kept.has_value());
  EXPECT_GT(in_bound, 1);
  EXPECT_GT(most_rounds, 1);
  EXPECT_GE(runs, total) << "all simulations are done";
  int64_t asked = 0;
  const auto stopped = Checked(RunOracle(Job(model), quick, [&](const OracleProgress& p) {
    asked += p.bound.most_rounds > 0;
    return p.bound.most_rounds == 0;
  }));
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(stopped.most_kept.has_value());
  EXPECT_EQ(stopped.unbounded, "the search was stopped");
  EXPECT_EQ(stopped.from, whole.from) << "the best so far is returned";
}

}  // namespace
}  // namespace tactus::sim
