#include "sim/simulator/simulator.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "base/sim_request.h"
#include "core/trace/replay.h"
#include "results/obs/run_result.h"
#include "sim/linear_model.h"
#include "sim/simulator/run_many.h"
#include "sim/small_engine.h"

namespace tactus::sim {
namespace {

SimulationConfig Config(const StepTimeModel& model, const std::string& preset = "sarathi-serve") {
  SimulationConfig c = SmallEngine(model, preset);
  c.seed = 1;
  return c;
}

std::unique_ptr<WorkloadStream> Stream(const std::string& workload, double rate, int64_t count, uint64_t seed = 1) {
  auto spec = ParseWorkload(workload);
  EXPECT_TRUE(spec.ok()) << spec.status().ToString();
  auto arrivals = ParseArrivals("poisson", rate);
  auto stream = WorkloadStream::Open(*spec, *arrivals, count, seed);
  EXPECT_TRUE(stream.ok()) << stream.status().ToString();
  return std::move(stream).value();
}

struct Outcome {
  std::unique_ptr<WorkloadStream> stream;
  std::unique_ptr<Simulation> sim;
  SortedJson json;
};
Outcome Simulate(const SimulationConfig& config, std::unique_ptr<WorkloadStream> stream) {
  Outcome run;
  run.stream = std::move(stream);
  auto made = Simulation::Create(config, run.stream.get());
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  run.sim = std::move(made).value();
  EXPECT_TRUE(run.sim->Run().ok());
  EXPECT_TRUE(run.sim->finished());
  run.json = SortedJson::parse(ToJson(run.sim->Outcome()));
  return run;
}

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// A single request: 40 prompt tokens in one step of 1 ms + 0.4 ms, then two decodes of 1.1 ms.
TEST(Simulation, OneRequestTakesItsStepsTimes) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.exact_percentiles = true;
  const Outcome run = Simulate(c, Stream("random:in=40,out=3", 1, 1));
  EXPECT_EQ(run.json["steps"], 3);
  EXPECT_DOUBLE_EQ(run.json["ttft_ms"]["p50"], 1.4);
  EXPECT_DOUBLE_EQ(run.json["tbt_ms"]["max"], 1.1);
  EXPECT_DOUBLE_EQ(run.json["e2e_ms"]["p50"], 3.6);
  EXPECT_DOUBLE_EQ(run.json["duration_s"], 0.0036);
  EXPECT_EQ(run.json["requests"]["completed"], 1);
  EXPECT_TRUE(run.json["mfu"].is_null());
  EXPECT_TRUE(run.json["goodput"].is_null());
}

// A closed loop of two, 512 tokens per step: 300 + 212 prompt tokens, then 88 with a decode, then two decodes.
TEST(Simulation, AClosedLoopStartsAllClientsAtOnceAndReplacesEndedRequests) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.concurrency = 2;
  std::vector<std::pair<TimeNs, TimeNs>> steps;
  c.on_step = [&](int32_t, const StepPlan& plan, TimeNs start, TimeNs) { steps.emplace_back(start, plan.num_tokens); };
  std::vector<double> delays;
  c.on_done = [&](const WorkloadRequest&, int32_t, const core::RequestDoneEvent& d) {
    delays.push_back(static_cast<double>(d.scheduled_ns - d.arrival_ns));
  };
  const Outcome run = Simulate(c, Stream("random:in=300,out=3", 0, 4));
  ASSERT_GE(steps.size(), 4u);
  EXPECT_EQ(steps[0], (std::pair<TimeNs, TimeNs>(0, 512)));
  EXPECT_EQ(steps[1].second, 89);
  EXPECT_EQ(steps[2].second, 2);
  // The first request has its three tokens after step 2; the next request arrives then, too late for the plan made at
  // that instant.
  EXPECT_EQ(steps[3].second, 1);
  EXPECT_EQ(steps[4].second, 300);
  EXPECT_EQ(run.json["requests"]["completed"], 4);
  // Requests that started at time 0 count too, with a delay of 0.
  EXPECT_NEAR(run.json["scheduling_delay_ms"]["mean"].get<double>(), Mean(delays) * 1e-6, 1e-5);
  EXPECT_EQ(delays.size(), 4u);
}

TEST(Simulation, EveryTokenOfEveryRequestIsCountedOnce) {
  LinearModel model;
  for (const int32_t stages : {1, 3}) {
    model.num_stages = stages;
    SimulationConfig c = Config(model);
    c.scheduler.limits.blocks_total = 300;  // tight: some are preempted
    c.scheduler.limits.max_model_len = 300 * 16;
    const Outcome run = Simulate(c, Stream("chat", 40, 300));
    auto stream = Stream("chat", 40, 300);
    WorkloadRequest r;
    int64_t in = 0, out = 0;
    while (stream->Next(&r)) {
      in += r.prompt_tokens;
      out += r.output_tokens;
    }
    const EngineStats stats = run.sim->Stats();
    EXPECT_GT(stats.preemptions, 0);
    const auto refused = run.json["requests"]["rejected"].get<int64_t>();
    if (refused == 0) {
      EXPECT_EQ(stats.prompt_tokens, in);
      EXPECT_EQ(stats.generation_tokens, out);
    }
    EXPECT_EQ(run.json["requests"]["completed"].get<int64_t>() + refused, 300);
    EXPECT_EQ(stats.kv_blocks_in_use, 0);
    EXPECT_EQ(stats.running + stats.waiting, 0);
  }
}

TEST(Simulation, TheSameSeedGivesTheSameResultOnAnyNumberOfThreads) {
  LinearModel model, pipeline;
  pipeline.num_stages = 2;
  std::vector<SimulationJob> jobs;
  for (const char* preset : {"sarathi-serve", "vllm", "orca", "vllm-v0"}) {
    for (const uint64_t seed : {1, 2}) {
      SimulationJob job;
      job.config = Config(seed == 1 ? static_cast<const StepTimeModel&>(model) : pipeline, preset);
      job.config.replicas = 2;
      job.config.balancer = "p2c";
      job.config.seed = seed;
      job.open = [seed] { return Result<std::unique_ptr<WorkloadStream>>(Stream("chat", 20, 200, seed)); };
      jobs.push_back(std::move(job));
    }
  }
  const auto clean = [](const Result<RunResult>& result) {
    EXPECT_TRUE(result.ok());
    auto json = SortedJson::parse(ToJson(*result));
    json.erase("decision_us");  // measured on this machine
    return json.dump();
  };
  const auto one = RunSimulations(jobs, 1), four = RunSimulations(jobs, 4);
  ASSERT_EQ(one.size(), jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(clean(one[i]), clean(four[i])) << i;
  EXPECT_NE(clean(one[0]), clean(one[1]));
}

TEST(Simulation, AFailingJobReturnsAnErrorAndTheOthersRun) {
  LinearModel model;
  std::vector<SimulationJob> jobs(2);
  for (SimulationJob& job : jobs) {
    job.config = Config(model);
    job.open = [] { return Result<std::unique_ptr<WorkloadStream>>(Stream("chat", 20, 20)); };
  }
  jobs[0].config.scheduler.preset = "nosuch";
  const auto results = RunSimulations(jobs, 2);
  EXPECT_EQ(results[0].status().param(), "scheduler");
  EXPECT_TRUE(results[1].ok());
}

TEST(Simulation, ConversationsFollowEachOtherAndFindTheirEarlierTurns) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.requests_out = ::testing::TempDir() + "/turns.csv";
  Outcome run = Simulate(c, Stream("multi-turn:turns=3,in=64,out=32", 5, 30));
  // Turn t has t * 96 tokens of history, all cached except the block with the last generated token (never computed).
  std::ifstream in(c.requests_out);
  std::string line;
  std::getline(in, line);
  std::vector<std::vector<double>> ended(10);
  while (std::getline(in, line)) {
    std::vector<std::string> cells(1);
    for (const char ch : line) {
      if (ch == ',') {
        cells.emplace_back();
      } else {
        cells.back() += ch;
      }
    }
    const int64_t index = std::stoll(cells[0]), turn = index % 3;
    EXPECT_EQ(std::stoll(cells[3]), 64 + turn * 96);
    EXPECT_EQ(std::stoll(cells[4]), turn == 0 ? 0 : turn * 96 - 16) << index;
    auto& ends = ended[static_cast<size_t>(index / 3)];
    if (turn > 0) {
      EXPECT_DOUBLE_EQ(std::stod(cells[2]), ends.back());  // arrives after the previous turn has ended
    }
    ends.push_back(std::stod(cells[8]));
  }
  for (const auto& ends : ended) EXPECT_EQ(ends.size(), 3u);
  c.prefix_caching = false;
  run = Simulate(c, Stream("multi-turn:turns=3,in=64,out=32", 5, 30));
  EXPECT_TRUE(run.json["prefix_sharing"].is_null());
}

// Ten conversations of three turns request 64, 160 and 256 prefix tokens; 80 and 176 of them are cached, on one
// replica.
TEST(Simulation, PrefixTokensAreSumsOverReplicas) {
  LinearModel model;
  SimulationConfig c = Config(model);
  const Outcome one = Simulate(c, Stream("multi-turn:turns=3,in=64,out=32", 5, 30));
  EXPECT_EQ(one.sim->Stats().prefix_query_tokens, 4800);
  EXPECT_EQ(one.sim->Stats().prefix_hit_tokens, 2560);
  EXPECT_NEAR(one.json["prefix_sharing"].get<double>(), 2560 / 4800.0, 1e-9);
  c.replicas = 2;
  c.balancer = "round-robin";
  const Outcome two = Simulate(c, Stream("multi-turn:turns=3,in=64,out=32", 5, 30));
  EXPECT_EQ(two.sim->Stats().prefix_query_tokens, 4800) << "the same number of prompts on any replica";
}

// An idle replica costs no passes: keep_going is called as often as without it.
TEST(Simulation, AnIdleReplicaIsNotRun) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.scheduler.limits.max_model_len = 24000;
  c.default_max_tokens = 20000;
  const auto asked = [&](int32_t replicas) {
    c.replicas = replicas;
    const auto stream = Stream("random:in=40,out=20000", 1, 1);
    auto sim = Simulation::Create(c, stream.get());
    EXPECT_TRUE(sim.ok()) << sim.status().ToString();
    int times = 0;
    EXPECT_TRUE((*sim)->Run([&times](const SimProgress&) { return ++times > 0; }).ok());
    EXPECT_EQ((*sim)->Stats().steps, 20000);
    return times;
  };
  const int one = asked(1);
  EXPECT_GE(one, 4) << "every 4,096 passes";
  EXPECT_EQ(asked(2), one);
}

TEST(Simulation, AStatedLengthBeyondTheContextIsRejectedOrClipped) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.scheduler.limits.max_model_len = 100;
  c.exact_max_tokens = true;
  Outcome run = Simulate(c, Stream("random:in=90,out=11", 5, 3));
  EXPECT_EQ(run.json["requests"]["rejected"], 3);
  EXPECT_EQ(run.json["first_rejection"],
            "prompt of 90 tokens + max_tokens of 11 exceed the context of 100 tokens; give max_tokens up to 10");
  EXPECT_EQ(Simulate(c, Stream("random:in=90,out=10", 5, 3)).json["requests"]["completed"], 3);
  c.clip_prompts = true;
  EXPECT_EQ(Simulate(c, Stream("random:in=90,out=11", 5, 3)).json["requests"]["completed"], 3);
}

TEST(Simulation, DecisionTimesComeFromTheStopwatchOrAreUnknown) {
  LinearModel model;
  SimulationConfig c = Config(model);
  EXPECT_TRUE(Simulate(c, Stream("random:in=10,out=5", 5, 3)).json["decision_us"].is_null());
  class Ticking final : public Clock {
   public:
    TimeNs NowNs() override { return now_ns_ += 2000; }
    TimeNs now_ns_ = 0;
  } stopwatch;
  c.stopwatch = &stopwatch;
  EXPECT_NEAR(Simulate(c, Stream("random:in=10,out=5", 5, 3)).json["decision_us"]["p50"].get<double>(), 2, 0.02);
}

TEST(Simulation, PromptsBeyondTheContextAreRejectedOrClipped) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.scheduler.limits.max_model_len = 100;
  Outcome run = Simulate(c, Stream("random:in=100,out=5", 5, 3));
  EXPECT_EQ(run.json["requests"]["rejected"], 3);
  EXPECT_NE(run.json["first_rejection"].get<std::string>().find(
                "prompt of 100 tokens + max_tokens of 1 exceed the context of 100 tokens; "
                "shorten the prompt"),
            std::string::npos)
      << run.json["first_rejection"];
  c.clip_prompts = true;
  run = Simulate(c, Stream("random:in=100,out=5", 5, 3));
  EXPECT_EQ(run.json["requests"]["completed"], 3);
  EXPECT_EQ(run.json["clipped_prompts"], 3);
  // In a closed loop a rejected request counts as ended: the next arrives, and the run ends.
  c.clip_prompts = false;
  c.concurrency = 2;
  run = Simulate(c, Stream("random:in=100,out=5", 0, 9));
  EXPECT_EQ(run.json["requests"]["rejected"], 9);
}

TEST(Simulation, AnAnswerBeyondMaxTokensIsCutAsTheServerWould) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.default_max_tokens = 10;
  const Outcome run = Simulate(c, Stream("random:in=50,out=40", 5, 4));
  EXPECT_EQ(run.sim->Stats().generation_tokens, 40);
  EXPECT_EQ(run.sim->Stats().finished_length, 4);
  EXPECT_EQ(run.json["cut_outputs"], 4);
}

TEST(Simulation, StatedLengthsReserveLess) {
  LinearModel model;
  SimulationConfig c = Config(model, "no-preempt");
  c.scheduler.limits.blocks_total = 512;  // 8192 tokens: two reservations of 4096, or many of 164
  const auto run_with = [&](bool exact) {
    c.exact_max_tokens = exact;
    c.concurrency = 16;
    return Simulate(c, Stream("random:in=100,out=64", 0, 64));
  };
  const Outcome assumed = run_with(false), stated = run_with(true);
  EXPECT_EQ(assumed.sim->Stats().generation_tokens, stated.sim->Stats().generation_tokens);
  EXPECT_EQ(stated.sim->Stats().finished_length, 64);
  EXPECT_EQ(assumed.sim->Stats().finished_stop, 64);
  EXPECT_GT(assumed.json["duration_s"].get<double>(), 2 * stated.json["duration_s"].get<double>());
}

TEST(Simulation, AQueueLimitRejectsAndNoLimitKeepsAll) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.max_queue = 5;
  Outcome run = Simulate(c, Stream("random:in=500,out=50", 100000, 200));
  EXPECT_GT(run.json["requests"]["rejected"].get<int64_t>(), 50);
  EXPECT_EQ(run.json["requests"]["rejected"].get<int64_t>() + run.json["requests"]["completed"].get<int64_t>(), 200);
  c.max_queue = 0;
  run = Simulate(c, Stream("random:in=500,out=50", 100000, 200));
  EXPECT_EQ(run.json["requests"]["completed"], 200);
}

// More requests wait than the loop accepts: the rest waits outside, in order and without loss.
TEST(Simulation, ABacklogBeyondTheVisibleQueueIsServedInOrder) {
  LinearModel model;
  model.base_ns = 1000;
  model.prefill_ns = model.decode_ns = 1;
  SimulationConfig c = Config(model);
  c.requests_out = ::testing::TempDir() + "/backlog.csv";
  const Outcome run = Simulate(c, Stream("random:in=4,out=2", 1e6, 20000));
  EXPECT_EQ(run.json["requests"]["completed"], 20000);
  std::ifstream in(c.requests_out);
  std::string line;
  std::getline(in, line);
  int64_t last = -1;
  while (std::getline(in, line)) {
    const int64_t index = std::stoll(line);
    EXPECT_EQ(index, last + 1);
    last = index;
  }
}

TEST(Simulation, ReplicasShareTheLoadAndTheSameLoadOnMoreIsFaster) {
  LinearModel model;
  double previous = 1e18;
  for (const int32_t replicas : {1, 2, 4}) {
    SimulationConfig c = Config(model);
    c.replicas = replicas;
    c.balancer = "least-outstanding";
    const Outcome run = Simulate(c, Stream("random:in=400,out=60", 100, 400));
    const auto p99 = run.json["e2e_ms"]["p99"].get<double>();
    EXPECT_LT(p99, previous);
    previous = p99;
    EXPECT_EQ(run.sim->plan_hashes().size(), static_cast<size_t>(replicas));
    int64_t steps = 0;
    for (int32_t i = 0; i < replicas; ++i) {
      EXPECT_GT(run.sim->executor(i).figures().steps, 0);
      steps += run.sim->executor(i).figures().steps;
    }
    EXPECT_EQ(run.json["steps"], steps);
  }
}

TEST(Simulation, AnInterruptedRunKeepsItsPartialResult) {
  LinearModel model;
  auto stream = Stream("chat", 20, 100000);
  auto sim = Simulation::Create(Config(model), stream.get());
  ASSERT_TRUE(sim.ok());
  int asked = 0;
  ASSERT_TRUE((*sim)->Run([&](const SimProgress&) { return ++asked < 3; }).ok());
  EXPECT_FALSE((*sim)->finished());
  const auto json = SortedJson::parse(ToJson((*sim)->Outcome()));
  const auto completed = json["requests"]["completed"].get<int64_t>();
  EXPECT_GT(completed, 0);
  EXPECT_EQ(completed + json["requests"]["rejected"].get<int64_t>() + json["requests"]["unfinished"].get<int64_t>(),
            100000);
  EXPECT_GT(json["request_throughput"].get<double>(), 0);
}

TEST(Simulation, BucketsAgreeWithExactPercentiles) {
  LinearModel model;
  SimulationConfig c = Config(model);
  const Outcome buckets = Simulate(c, Stream("chat", 10, 400));
  c.exact_percentiles = true;
  const Outcome exact = Simulate(c, Stream("chat", 10, 400));
  EXPECT_EQ(buckets.json["plan_hash"], exact.json["plan_hash"]);
  for (const char* what : {"ttft_ms", "tbt_ms", "tpot_ms", "e2e_ms", "scheduling_delay_ms"}) {
    for (const char* q : {"mean", "p50", "p90", "p95", "p99", "max"}) {
      const auto e = exact.json[what][q].get<double>();
      // 0.5 % of the value; a delay of 0 counts as one nanosecond in a bucket.
      EXPECT_NEAR(buckets.json[what][q].get<double>(), e, 0.005 * e + 2e-6) << what << " " << q;
    }
  }
}

TEST(Simulation, ARecordedSimulationReplaysToTheSamePlans) {
  LinearModel model;
  // The last two use the step-time model in every step: its answers are in the trace.
  for (const char* preset : {"sarathi-serve", "vllm", "fastserve", "accelgen"}) {
    SCOPED_TRACE(preset);
    SimulationConfig c = Config(model, preset);
    c.scheduler.limits.blocks_total = 300;
    c.scheduler.limits.max_model_len = 300 * 16;
    c.trace_out = ::testing::TempDir() + "/sim.trace";
    const Outcome run = Simulate(c, Stream("multi-turn:turns=4,in=200,out=100", 20, 100));
    const auto report = core::ReplayTrace(c.trace_out);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_TRUE(report->identical()) << "first difference at step " << report->first_difference;
    EXPECT_EQ(report->plan_hash_replayed, run.sim->plan_hashes()[0]);
    EXPECT_EQ(report->steps_replayed, run.json["steps"].get<int64_t>());
  }
}

// With a pipeline the budget keeps headroom below the objective, with or without a trace.
TEST(Simulation, ATraceChangesNoDecisionOfAPipeline) {
  LinearModel model;
  model.num_stages = 2;
  SimulationConfig c = Config(model);
  c.scheduler.limits.pipeline_steps = 2;
  c.scheduler.limits.token_budget = 0;
  c.scheduler.limits.tbt_slo_ns = 20 * kMillisecond;
  const Outcome plain = Simulate(c, Stream("random:in=2000,out=20", 4, 60));
  c.trace_out = ::testing::TempDir() + "/pipeline.trace";
  const Outcome traced = Simulate(c, Stream("random:in=2000,out=20", 4, 60));
  EXPECT_EQ(traced.json["plan_hash"], plain.json["plan_hash"]);
  const auto report = core::ReplayTrace(c.trace_out);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report->identical());
  // The headroom matters here: without it the steps are larger.
  c.trace_out.clear();
  *c.scheduler.limits.policy.Find<double>("tbt-headroom") = 1;
  EXPECT_NE(Simulate(c, Stream("random:in=2000,out=20", 4, 60)).json["plan_hash"], plain.json["plan_hash"]);
}

TEST(Simulation, MetObjectivesAreCountedByClass) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.slo.tbt_ns = 1'150'000;  // a decode alone takes 1.1 ms, two 1.2 ms
  c.slo_class = "interactive";
  c.concurrency = 1;
  Outcome run = Simulate(c, Stream("random:in=40,out=5", 0, 8));
  EXPECT_DOUBLE_EQ(run.json["slo_attainment"], 1.0);
  EXPECT_EQ(run.json["classes"]["interactive"]["kept"], 8);
  EXPECT_DOUBLE_EQ(run.json["goodput"], run.json["request_throughput"]);
  c.concurrency = 2;
  run = Simulate(c, Stream("random:in=40,out=5", 0, 8));
  EXPECT_DOUBLE_EQ(run.json["slo_attainment"], 0.0);
  EXPECT_DOUBLE_EQ(run.json["step_attainment"], 0.0);
  run = Simulate(c, Stream("random:in=40,out=5", 0, 9));  // the ninth runs alone
  EXPECT_DOUBLE_EQ(run.json["tbt_attainment"], 1.0 / 9);
  EXPECT_DOUBLE_EQ(run.json["step_attainment"], 4.0 / 36);
}

TEST(Simulation, AnObjectiveBelowAnyStepRunsAndIsReported) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.concurrency = 1;
  const auto below = [&](const Slo& slo) {
    c.slo = slo;
    const Outcome run = Simulate(c, Stream("random:in=40,out=5", 0, 8));
    EXPECT_EQ(run.json["requests"]["completed"], 8);
    EXPECT_DOUBLE_EQ(run.json["shortest_step_ms"], 1.01);  // a step of one prompt token
    return run.json["objectives_below_a_step"].get<int>();
  };
  EXPECT_EQ(below({}), 0);
  EXPECT_EQ(below({0, 1'010'000, 0}), 0);
  EXPECT_EQ(below({0, 1'009'999, 0}), 8);
  EXPECT_EQ(below({1, 0, 0}), 8);
  EXPECT_EQ(below({0, 0, 1'000'000}), 8);
  const Outcome run = Simulate(c, Stream("random:in=40,out=5", 0, 8));
  EXPECT_NE(
      results::RunTable(run.sim->Outcome()).find("8 requests have an objective below the shortest step, 1.010 ms"),
      std::string::npos);
}

// Objectives in a file reach the requests; missing ones come from the configuration.
TEST(Simulation, TheWorkloadsObjectivesReachTheRequests) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.slo = {.ttft_ns = kSecond, .tbt_ns = kSecond};
  c.slo_class = "other";
  c.client = "a client";
  std::vector<std::shared_ptr<const Request>> requests(3);
  c.on_done = [&requests](const WorkloadRequest& work, int32_t, const core::RequestDoneEvent& d) {
    requests[static_cast<size_t>(work.index)] = d.request;
  };
  const std::string path = testing::TempDir() + "/terms.csv";
  std::ofstream(path) << "arrival_s,prompt_tokens,output_tokens,slo_tbt_ms,slo_class,priority,predicted_output_tokens,"
                         "client\n0,40,5,1.5,chat,-2,9,ann\n1,40,5,,,,,\n1,5000,5,7,chat,,,\n";
  const Outcome run = Simulate(c, Stream("trace:" + path, 0, 0));
  ASSERT_TRUE(requests[0] != nullptr && requests[1] != nullptr);
  EXPECT_EQ(requests[0]->slo, (Slo{0, 1'500'000, 0}));
  EXPECT_EQ(requests[0]->slo_class, "chat");
  EXPECT_EQ(requests[0]->client, "ann");
  EXPECT_EQ(requests[0]->priority, -2);
  EXPECT_EQ(static_cast<const SimRequest&>(*requests[0]).predicted_output_tokens, 9);
  EXPECT_EQ(requests[1]->slo, c.slo);
  EXPECT_EQ(requests[1]->slo_class, "other");
  EXPECT_EQ(requests[1]->client, "a client");
  EXPECT_EQ(requests[1]->priority, 0);
  EXPECT_EQ(run.json["classes"]["chat"]["stated"], 2) << "including the rejected request";
  EXPECT_EQ(run.json["classes"]["chat"]["kept"], 1);
  EXPECT_EQ(run.json["classes"]["other"]["kept"], 1);
}

// Each line of the log ends with class and objectives in the format of a workload's file: the stated ones, or the
// configuration's. Rejected requests too.
TEST(Simulation, TheRequestLogHasClassesAndObjectives) {
  LinearModel model;
  SimulationConfig c = Config(model);
  c.slo = {.ttft_ns = kSecond, .jct_ns = 2 * kSecond + 1};
  c.slo_class = "a,\"b\"";
  c.requests_out = ::testing::TempDir() + "/stated_log.csv";
  const std::string path = testing::TempDir() + "/stated_terms.csv";
  std::ofstream(path) << "arrival_s,prompt_tokens,output_tokens,slo_tbt_ms,slo_class\n"
                         "0,40,5,1.5,chat\n1,40,5,,\n2,5000,5,7,chat\n";
  Simulate(c, Stream("trace:" + path, 0, 0));
  std::ifstream in(c.requests_out);
  std::vector<std::string> ends;
  for (std::string line; std::getline(in, line);) ends.push_back(line);
  ASSERT_EQ(ends.size(), 4u);
  const auto expect_end = [&](size_t i, const std::string& end) {
    EXPECT_TRUE(ends[i].ends_with(end)) << ends[i] << "\nwanted " << end;
  };
  expect_end(0, ",finish,slo_class,slo_ttft_ms,slo_tbt_ms,slo_jct_ms");
  expect_end(1, ",stop,chat,,1.500000,");
  expect_end(2, ",stop,a__b_,1000.000000,,2000.000001");
  expect_end(3, ",rejected,chat,,7.000000,");
}

TEST(Simulation, InvalidConfigurationsAreRejectedWithTheFlag) {
  LinearModel model;
  const auto status_of = [&](const std::function<void(SimulationConfig*)>& change, double rate = 1, int64_t count = 5) {
    SimulationConfig c = Config(model);
    change(&c);
    auto stream = Stream("chat", rate, count);
    return Simulation::Create(c, stream.get()).status();
  };
  EXPECT_EQ(status_of([](auto* c) { c->scheduler.preset = "x"; }).param(), "scheduler");
  EXPECT_EQ(status_of([](auto* c) { c->balancer = "x"; }).param(), "balancer");
  EXPECT_EQ(status_of([](auto* c) { c->scheduler.predictor = "x"; }).param(), "predictor");
  EXPECT_EQ(status_of([](auto* c) { c->replicas = 0; }).param(), "replicas");
  EXPECT_EQ(status_of([](auto* c) { c->concurrency = -1; }).param(), "concurrency");
  EXPECT_EQ(status_of([](auto* c) { c->client_gap_ns = -1; }).param(), "client-gap");
  EXPECT_EQ(status_of([](auto* c) { c->default_max_tokens = 0; }).param(), "default-max-tokens");
  EXPECT_EQ(status_of([](auto* c) { c->max_queue = -1; }).param(), "max-queue");
  EXPECT_EQ(status_of([](auto* c) { c->step_time = nullptr; }).param(), "cost");
  EXPECT_EQ(status_of([](auto*) {}, 0).param(), "rate");
  const std::string nowhere = testing::TempDir() + "/no_such_folder/x";
  EXPECT_EQ(status_of([&](auto* c) { c->requests_out = nowhere; }).param(), "requests-out");
  EXPECT_EQ(status_of([&](auto* c) { c->steps_out = nowhere; }).param(), "steps-out");
  EXPECT_EQ(status_of([&](auto* c) { c->trace_out = nowhere; }).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status_of([](auto* c) { c->scheduler.limits.blocks_total = int64_t{1} << 30; }).param(), "kv-blocks");
  EXPECT_EQ(status_of([](auto* c) { c->swap_blocks = int64_t{1} << 40; }).param(), "swap-space");
  EXPECT_EQ(status_of([](auto* c) { c->scheduler.limits.max_model_len = 1; }).param(), "max-model-len");
}

// The number of requests bounds the waiting ones, so that a closed loop of a million clients needs no memory for
// clients without requests.
TEST(Simulator, MoreClientsThanRequestsUseNoExtraMemory) {
  const LinearModel model;
  SimulationConfig c = Config(model);
  c.concurrency = 1 << 20;
  auto stream = Stream("chat", 0, 5);
  auto sim = Simulation::Create(c, stream.get());
  ASSERT_TRUE(sim.ok()) << sim.status().ToString();
  ASSERT_TRUE((*sim)->Run().ok());
  EXPECT_EQ((*sim)->progress().ended, 5);
  EXPECT_EQ((*sim)->progress().steps, (*sim)->Stats().steps);
  EXPECT_GT((*sim)->progress().steps, 0);
}

}  // namespace
}  // namespace tactus::sim
