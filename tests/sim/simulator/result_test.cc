// The figures of a result, compared with values computed by hand.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "cost/cost_model.h"
#include "sim/linear_model.h"
#include "sim/logs/request_log.h"
#include "sim/simulator/simulator.h"
#include "sim/workload/trace_file.h"

namespace tactus::result_test {
namespace {

sim::SimulationConfig Config(const StepTimeModel& model) {
  sim::SimulationConfig c;
  c.step_time = &model;
  c.scheduler.limits.unlimited_steps = true;
  c.scheduler.limits.max_num_seqs = 16;
  c.scheduler.limits.max_model_len = 4096;
  c.scheduler.limits.blocks_total = 1000;
  c.scheduler.limits.block_size = 16;
  c.seed = 1;
  return c;
}

std::unique_ptr<sim::WorkloadStream> Rows(const std::string& text) {
  sim::WorkloadSpec spec;
  spec.kind = sim::WorkloadSpec::Kind::kTrace;
  spec.text = spec.file = "rows.csv";
  spec.rows = *sim::TraceFile::Parse("rows.csv", text);
  return sim::WorkloadStream::Open(spec, {}, 0, 1).value();
}

struct Simulated {
  SortedJson json;
  EngineStats stats;
};
Simulated Simulate(const sim::SimulationConfig& config, const std::string& rows) {
  const auto workload = Rows("arrival_s,prompt_tokens,output_tokens\n" + rows);
  auto sim = sim::Simulation::Create(config, workload.get());
  EXPECT_TRUE(sim.ok()) << sim.status().ToString();
  EXPECT_TRUE((*sim)->Run().ok());
  return {SortedJson::parse(ToJson((*sim)->Outcome())), (*sim)->Stats()};
}

// One request per second for 20 s: base and prompt 2 ms, each decode 0.1 ms, so requests never overlap. From 5 s to 15
// s ten arrived and ten ended; MFU and steps are those of the whole run.
TEST(SimResult, AMeasuredPartLeavesWarmUpAndDrainOut) {
  const sim::LinearModel model;
  sim::SimulationConfig c = Config(model);
  std::string rows;
  for (int i = 0; i < 20; ++i)
    rows += std::to_string(i) + (i == 19 ? ",100,3000\n" : ",100,2\n");  // a long last answer
  const Simulated whole = Simulate(c, rows);
  c.warmup.ns = 5 * kSecond;
  c.measure.ns = 10 * kSecond;
  const Simulated part = Simulate(c, rows);
  EXPECT_EQ(part.json["requests"]["completed"], 10);
  EXPECT_EQ(part.json["requests"]["unfinished"], 0);
  EXPECT_EQ(part.json["duration_s"], 10.0);
  EXPECT_EQ(part.json["measured_from_s"], 5.0);
  EXPECT_EQ(part.json["request_throughput"], 1.0);
  EXPECT_EQ(part.json["output_token_throughput"], 2.0);
  EXPECT_EQ(part.json["tbt_ms"]["max"], part.json["tbt_ms"]["p50"]);
  EXPECT_EQ(part.json["plan_hash"], whole.json["plan_hash"]);
  EXPECT_EQ(part.json["steps"], whole.json["steps"]);
  EXPECT_LT(whole.json["request_throughput"].get<double>(), 1.0)
      << "without a window the end of the last request counts";
  c.warmup = {.requests = 5};
  c.measure = {};
  const Simulated rest = Simulate(c, rows);
  EXPECT_EQ(rest.json["requests"]["completed"], 14) << "all but the first five and the last, which ends the load";
  EXPECT_EQ(rest.json["duration_s"], 14.0);
}

// Two independent replicas with very different numbers of steps: the mean is over all steps.
TEST(SimResult, MemoryAndBudgetUseAreMeansOverAllReplicasSteps) {
  const sim::LinearModel model;
  sim::SimulationConfig c = Config(model);
  const std::string small = "0,16,2\n", large = "0,2000,400\n";
  const Simulated a = Simulate(c, small), b = Simulate(c, large);
  // The small replica uses 1 block of 1000 in its first step and 2 in its second, and 16 + 1 tokens of two budgets of
  // 512.
  ASSERT_EQ(a.stats.steps, 2);
  EXPECT_DOUBLE_EQ(a.stats.kv_utilization, 0.0015);
  EXPECT_DOUBLE_EQ(a.stats.budget_utilization, 17.0 / 1024);
  ASSERT_GT(b.stats.steps, 10 * a.stats.steps);
  c.replicas = 2;
  c.balancer = "round-robin";
  const Simulated both = Simulate(c, small + large);
  ASSERT_EQ(both.stats.steps, a.stats.steps + b.stats.steps);
  const auto mean = [&](decltype(&EngineStats::kv_utilization) figure) {
    return (a.stats.*figure * static_cast<double>(a.stats.steps) +
            b.stats.*figure * static_cast<double>(b.stats.steps)) /
           static_cast<double>(both.stats.steps);
  };
  EXPECT_NEAR(both.stats.kv_utilization, mean(&EngineStats::kv_utilization), 1e-12);
  EXPECT_NEAR(both.stats.budget_utilization, mean(&EngineStats::budget_utilization), 1e-12);
  EXPECT_NEAR(both.json["kv_utilization"].get<double>(), mean(&EngineStats::kv_utilization), 1e-9);
  EXPECT_NEAR(both.json["budget_utilization"].get<double>(), mean(&EngineStats::budget_utilization), 1e-9);
  EXPECT_NE(both.json["plan_hash"], a.json["plan_hash"]);
  EXPECT_NE(both.json["plan_hash"], b.json["plan_hash"]);
  EXPECT_EQ(both.json["replicas"], 2);
  EXPECT_EQ(both.stats.prompt_tokens, 2016);
  EXPECT_EQ(both.stats.generation_tokens, 402);
  EXPECT_EQ(both.stats.finished_stop + both.stats.finished_length, 2);
  EXPECT_EQ(both.stats.kv_blocks_total, 2000);
}

// Two equal replicas, each row once per replica: every count is twice one replica's. Six sequences of 300 tokens
// preempt each other in KV memory for 960 tokens.
TEST(SimResult, CountsAreSumsOverReplicas) {
  const sim::LinearModel model;
  std::string once, twice;
  for (int i = 0; i < 6; ++i) {
    const std::string row = "0,100,200\n";
    once += row;
    twice += row + row;
  }
  for (const char* preemption : {"youngest-recompute", "swap"}) {
    sim::SimulationConfig c = Config(model);
    c.scheduler.limits.blocks_total = 60;
    c.scheduler.limits.max_model_len = 960;
    c.scheduler.preemption = preemption;
    c.swap_blocks = 200;
    const EngineStats one = Simulate(c, once).stats;
    c.replicas = 2;
    c.balancer = "round-robin";
    const Simulated both = Simulate(c, twice);
    const std::pair<const char*, int64_t EngineStats::*> kCounts[] = {
        {"steps", &EngineStats::steps},
        {"prompt tokens", &EngineStats::prompt_tokens},
        {"generated tokens", &EngineStats::generation_tokens},
        {"preemptions", &EngineStats::preemptions},
        {"recomputed tokens", &EngineStats::recomputed_tokens},
        {"KV blocks", &EngineStats::kv_blocks_total},
        {"swap blocks", &EngineStats::swap_blocks_total},
        {"blocks swapped out", &EngineStats::swapped_out_blocks},
        {"blocks swapped in", &EngineStats::swapped_in_blocks},
        {"stops", &EngineStats::finished_stop},
        {"ends by length", &EngineStats::finished_length}};
    for (const auto& [name, count] : kCounts)
      EXPECT_EQ(both.stats.*count, 2 * (one.*count)) << preemption << ": " << name;
    EXPECT_GT(one.preemptions, 0) << preemption;
    EXPECT_EQ(one.generation_tokens, 1200);
    EXPECT_EQ(one.finished_stop + one.finished_length, 6);
    if (std::string(preemption) == "swap") {
      EXPECT_GT(one.swapped_out_blocks, 0);
      EXPECT_GT(one.swapped_in_blocks, 0);
    } else {
      EXPECT_GT(one.recomputed_tokens, 0);
    }
    EXPECT_EQ(both.json["requests"]["completed"], 12);
  }
}

// Three requests, 2 s apart, each alone: 40 tokens in 1.4 ms, two decodes of 1.1 ms.
TEST(SimResult, RatesAndMeansMatchRequestsThatRunAlone) {
  const sim::LinearModel model;
  sim::SimulationConfig c = Config(model);
  const Simulated run = Simulate(c, "10,40,3\n12,40,3\n14,40,3\n");
  EXPECT_DOUBLE_EQ(run.json["duration_s"], 4.0036);              // from the first arrival
  EXPECT_DOUBLE_EQ(run.json["request_rate_achieved"], 2 / 4.0);  // two gaps in 4 s
  EXPECT_DOUBLE_EQ(run.json["mean_batch"], 1.0);
  EXPECT_NEAR(run.json["step_ms"]["max"].get<double>(), 1.4, 1e-9);
  EXPECT_NEAR(run.json["step_ms"]["mean"].get<double>(), (1.4 + 1.1 + 1.1) / 3, 1e-9);
  EXPECT_NEAR(run.json["request_throughput"].get<double>(), 3 / 4.0036, 1e-9);
  EXPECT_NEAR(run.json["input_token_throughput"].get<double>(), 120 / 4.0036, 1e-9);
  EXPECT_NEAR(run.json["output_token_throughput"].get<double>(), 9 / 4.0036, 1e-9);
  EXPECT_EQ(run.json["requests"]["unfinished"], 0);
  EXPECT_TRUE(run.json["first_rejection"].is_null());
  // A single request has no rate.
  EXPECT_TRUE(Simulate(c, "5,40,3\n").json["request_rate_achieved"].is_null());
  EXPECT_TRUE(Simulate(c, "5,40,3\n5,40,3\n").json["request_rate_achieved"].is_null());
}

TEST(SimResult, DeviceUseCountsTheDevicesOfAllReplicas) {
  cost::Deployment d;
  d.model = "llama-3.1-8b";
  d.device = "h100";
  const auto meter = cost::CostModel::Create(d);
  ASSERT_TRUE(meter.ok()) << meter.status().ToString();
  const sim::LinearModel model;
  sim::SimulationConfig c = Config(model);
  c.meter = meter->get();
  const Simulated one = Simulate(c, "0,1000,20\n");
  c.replicas = 2;  // the second is idle
  const Simulated two = Simulate(c, "0,1000,20\n");
  EXPECT_GT(one.json["mfu"].get<double>(), 0);
  EXPECT_NEAR(two.json["mfu"].get<double>(), one.json["mfu"].get<double>() / 2, 1e-12);
  EXPECT_NEAR(two.json["mbu"].get<double>(), one.json["mbu"].get<double>() / 2, 1e-12);
  // About 2 operations per token and parameter of the layers, which have 7.0e9 of the 8.0e9 parameters.
  EXPECT_NEAR(one.json["mfu"].get<double>(),
              2 * 7.0e9 * 1019 / (meter.value()->peak_flops() * one.json["duration_s"].get<double>()),
              0.15 * one.json["mfu"].get<double>());
}

// 1,000 tokens in chunks of 512 and 488, then two decodes that read 1,001 and 1,002 tokens: the sum of the meter's
// values.
TEST(SimResult, DeviceUseIsTheSumOverTheSteps) {
  cost::Deployment d;
  d.model = "llama-3.1-8b";
  d.device = "h100";
  const auto meter = cost::CostModel::Create(d);
  ASSERT_TRUE(meter.ok()) << meter.status().ToString();
  const sim::LinearModel model;
  sim::SimulationConfig c = Config(model);
  c.meter = meter->get();
  const Simulated run = Simulate(c, "0,1000,3\n");
  const ChunkShape first{0, 512}, second{512, 488};
  std::vector<StepShape> steps(4);
  steps[0].chunks = {&first, 1};
  steps[1].chunks = {&second, 1};
  steps[1].logit_rows = steps[2].logit_rows = steps[3].logit_rows = 1;
  steps[2].decodes = steps[3].decodes = 1;
  steps[2].decode_context_tokens = 1001;
  steps[3].decode_context_tokens = 1002;
  double flops = 0, bytes = 0;
  for (const StepShape& s : steps) {
    flops += c.meter->StepFlops(s);
    bytes += c.meter->StepBytes(s);
  }
  const auto seconds = run.json["duration_s"].get<double>();
  EXPECT_NEAR(seconds, (4 * 1 + 10 + 2 * 0.1) * 1e-3, 1e-12);
  EXPECT_NEAR(run.json["mfu"].get<double>() * seconds * c.meter->peak_flops() / flops, 1, 1e-9);
  EXPECT_NEAR(run.json["mbu"].get<double>() * seconds * c.meter->peak_bandwidth() / bytes, 1, 1e-9);
}

TEST(SimResult, ThePromptMayFillTheContextButNotExceedIt) {
  const sim::LinearModel model;
  sim::SimulationConfig c = Config(model);
  c.scheduler.limits.max_model_len = 100;
  EXPECT_EQ(Simulate(c, "0,99,5\n").json["requests"]["completed"], 1);
  EXPECT_EQ(Simulate(c, "0,99,5\n").stats.generation_tokens, 1);  // the rest of the context
  const Simulated refused = Simulate(c, "0,100,5\n0,10,5\n");
  EXPECT_EQ(refused.json["requests"]["rejected"], 1);
  EXPECT_EQ(refused.json["requests"]["completed"], 1);
  EXPECT_NE(refused.json["first_rejection"].get<std::string>().find("prompt of 100 tokens"), std::string::npos);
  c.clip_prompts = true;
  const Simulated clipped = Simulate(c, "0,100,30\n0,99,1\n0,500,99\n0,500,4000\n");
  EXPECT_EQ(clipped.json["clipped_prompts"], 3);
  EXPECT_EQ(clipped.stats.prompt_tokens, 70 + 99 + 1 + 1);
  EXPECT_EQ(clipped.stats.generation_tokens, 30 + 1 + 99 + 99);
}

TEST(SimResult, AnAnswerOfExactlyMaxTokensIsNotCut) {
  const sim::LinearModel model;
  sim::SimulationConfig c = Config(model);
  c.default_max_tokens = 10;
  EXPECT_EQ(Simulate(c, "0,50,10\n").json["cut_outputs"], 0);
  EXPECT_EQ(Simulate(c, "0,50,11\n").json["cut_outputs"], 1);
  c.exact_max_tokens = true;
  const Simulated exact = Simulate(c, "0,50,11\n");
  EXPECT_EQ(exact.json["cut_outputs"], 0);
  EXPECT_EQ(exact.stats.generation_tokens, 11);
}

TEST(SimResult, LimitsOfAConfigurationAreExact) {
  const sim::LinearModel model;
  const auto param = [&](const std::function<void(sim::SimulationConfig*)>& change) {
    sim::SimulationConfig c = Config(model);
    change(&c);
    const auto workload = Rows("arrival_s,prompt_tokens,output_tokens\n0,5,5\n");
    return sim::Simulation::Create(c, workload.get()).status().param();
  };
  EXPECT_EQ(param([](auto* c) { c->replicas = 4097; }), "replicas");
  EXPECT_EQ(param([](auto* c) { c->scheduler.limits.blocks_total = (int64_t{1} << 27) + 1; }), "kv-blocks");
  EXPECT_EQ(param([](auto* c) { c->replicas = 2, c->scheduler.limits.blocks_total = (int64_t{1} << 26) + 1; }),
            "kv-blocks");
  EXPECT_EQ(param([](auto* c) { c->swap_blocks = (int64_t{1} << 27) - 999; }),
            "swap-space");  // with 1000 KV blocks one too many
  EXPECT_EQ(param([](auto* c) { c->swap_blocks = -1; }), "kv-blocks");
  EXPECT_EQ(param([](auto* c) { c->scheduler.limits.blocks_total = 0; }), "kv-blocks");
  EXPECT_EQ(param([](auto* c) { c->default_max_tokens = 1; }), "");
  EXPECT_EQ(param([](auto* c) { c->priorities = std::make_shared<const std::vector<int32_t>>(); }), "priorities");
  EXPECT_EQ(param([](auto* c) { c->priorities = std::make_shared<const std::vector<int32_t>>(1, 0); }), "");
}

TEST(RequestLog, HasOneLinePerRequest) {
  const auto path =
      (std::filesystem::path(testing::TempDir()) / ("requests_" + std::to_string(getpid()) + ".csv")).string();
  auto log = sim::RequestLog::Create(path);
  ASSERT_TRUE(log.ok());
  sim::WorkloadRequest r;
  r.index = 7;
  r.prompt_tokens = 33;
  core::RequestDoneEvent d{.arrival_ns = 1'500'000'000,
                           .scheduled_ns = 2'000'000'001,
                           .first_token_ns = 3'000'000'000,
                           .done_ns = 4'020'000'000,
                           .prompt_tokens = 32,
                           .cached_tokens = 16,
                           .completion_tokens = 5,
                           .preemptions = 2,
                           .recomputed_tokens = 9,
                           .finish = FinishReason::kLength,
                           .longest_gap_ns = 250'000};
  (*log)->Ended(r, 3, d);
  (*log)->Refused(r, 2 * kSecond);
  ASSERT_TRUE((*log)->Close().ok());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(),
            "request,replica,arrival_s,prompt_tokens,cached_tokens,output_tokens,scheduled_s,first_token_s,done_s,"
            "longest_gap_s,preemptions,recomputed_tokens,finish,slo_class,slo_ttft_ms,slo_tbt_ms,slo_jct_ms\n"
            "7,3,1.500000000,32,16,5,2.000000001,3.000000000,4.020000000,0.000250000,2,9,length,,,,\n"
            "7,,2.000000000,33,,0,,,2.000000000,,,,rejected,,,,\n");
  std::filesystem::remove(path);
}

TEST(RequestLog, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  auto log = sim::RequestLog::Create("/dev/full");
  ASSERT_TRUE(log.ok());
  EXPECT_EQ((*log)->Close().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace tactus::result_test
