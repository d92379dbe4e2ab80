// Offline jobs in simulation: every request runs once, with the plan of a batch, on one replica or in shards.
#include "sim/simulator/planned_job.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "results/obs/run_result.h"
#include "sim/linear_model.h"
#include "sim/simulator/simulator.h"

namespace tactus::sim {
namespace {

// A workload of the given requests, all at once.
class ListedStream final : public WorkloadStream {
 public:
  explicit ListedStream(std::vector<WorkloadRequest> requests) : requests_(std::move(requests)) {}
  int64_t count() const override { return static_cast<int64_t>(requests_.size()); }
  bool Next(WorkloadRequest* r) override {
    if (next_ == requests_.size()) return false;
    *r = requests_[next_];
    r->index = static_cast<int64_t>(next_++);
    return true;
  }
  bool NextTurn(const WorkloadRequest&, WorkloadRequest*) override { return false; }
  bool has_arrivals() const override { return false; }
  bool shares_text() const override { return true; }

 private:
  const std::vector<WorkloadRequest> requests_;
  size_t next_ = 0;
};

// Two mixed tasks: long shared prompts with short answers, and short prompts with long answers.
std::vector<WorkloadRequest> Mix(int32_t each) {
  std::vector<WorkloadRequest> all;
  for (int32_t i = 0; i < each; ++i) {
    all.push_back(
        {.prompt_tokens = 600 + i % 50, .output_tokens = 4 + i % 9, .prefix_id = i % 8, .shared_tokens = 320});
    all.push_back({.prompt_tokens = 40, .output_tokens = 200 + i % 60, .prefix_id = 100, .shared_tokens = 16});
  }
  return all;
}

SimulationConfig JobConfig(const StepTimeModel& model, const std::string& preset) {
  SimulationConfig c;
  c.step_time = &model;
  c.scheduler.preset = preset;
  c.scheduler.limits.max_num_seqs = 64;
  c.scheduler.limits.max_model_len = 2048;
  c.scheduler.limits.blocks_total = 600;
  c.scheduler.limits.block_size = 16;
  c.default_max_tokens = 1000;
  c.max_queue = 64;
  c.seed = 1;
  c.job.emplace();
  c.job->cost = CostOfSteps(model, nullptr, 512);
  c.job->overlap = {.linear = 1};
  return c;
}

// 10 us per prompt token, 0.2 us to read the KV of a token.
LinearModel Device() {
  LinearModel model;
  model.prefill_ns = 10'000;
  model.decode_ns = 10'000;
  model.context_ns = 200;
  return model;
}

struct Simulated {
  RunResult result;
  std::vector<uint64_t> hashes;
  std::multiset<int64_t> done;
  std::vector<std::vector<int64_t>> by_replica;
  int64_t without_place = 0, most_waiting = 0;
};
Simulated Simulate(SimulationConfig c, std::vector<WorkloadRequest> requests) {
  Simulated run;
  run.by_replica.resize(static_cast<size_t>(c.replicas));
  c.on_done = [&run](const WorkloadRequest& r, int32_t replica, const core::RequestDoneEvent& done) {
    run.done.insert(r.index);
    run.without_place += done.request->planned.position < 0;
    run.by_replica[static_cast<size_t>(replica)].push_back(r.index);
  };
  ListedStream stream(std::move(requests));
  Simulation* running = nullptr;
  c.on_step = [&](int32_t, const StepPlan&, TimeNs, TimeNs) {
    run.most_waiting = std::max(run.most_waiting, running->Stats().waiting);
  };
  auto sim = Simulation::Create(c, &stream);
  if (sim.ok()) running = sim->get();
  EXPECT_TRUE(sim.ok()) << sim.status().ToString();
  if (!sim.ok()) return run;
  EXPECT_TRUE((*sim)->Run().ok());
  EXPECT_TRUE((*sim)->finished());
  run.result = (*sim)->Outcome();
  run.hashes = (*sim)->plan_hashes();
  return run;
}

TEST(PlannedJob, EveryOrderRunsEveryRequestOnce) {
  const LinearModel model = Device();
  for (const char* preset : {"fcfs", "dfs", "random", "balance", "blend", "blend-dual-scan"}) {
    for (const bool known : {false, true}) {
      SimulationConfig c = JobConfig(model, preset);
      c.job->lengths_known = known;
      const Simulated run = Simulate(c, Mix(150));
      EXPECT_EQ(run.result.completed, 300) << preset;
      EXPECT_EQ(std::set<int64_t>(run.done.begin(), run.done.end()).size(), 300u) << preset;
      ASSERT_TRUE(run.result.plan);
      EXPECT_EQ(run.result.plan->order, preset);
      EXPECT_EQ(run.result.plan->requests, 300);
      EXPECT_EQ(run.without_place, run.result.plan->sample) << "all other requests have their place in the plan";
      const bool by_lengths = std::string(preset) == "balance" || std::string(preset).starts_with("blend");
      EXPECT_EQ(run.result.plan->sample > 0, by_lengths && !known) << preset;
      EXPECT_GT(*run.result.plan->share_of_practical_bound, *run.result.plan->share_of_bound);
      EXPECT_LT(*run.result.plan->share_of_practical_bound, 1);
      EXPECT_EQ(run.result.plan->achieved_sharing, run.result.engine->prefix_sharing);
      EXPECT_EQ(SortedJson::parse(ToJson(run.result))["plan"]["order"], preset);
    }
  }
}

TEST(PlannedJob, BlendSharesLikeDepthFirstAndIsFasterThanFileOrder) {
  const LinearModel model = Device();
  const Simulated blend = Simulate(JobConfig(model, "blend"), Mix(400)),
                  dfs = Simulate(JobConfig(model, "dfs"), Mix(400)),
                  fcfs = Simulate(JobConfig(model, "fcfs"), Mix(400));
  EXPECT_GT(*blend.result.engine->prefix_sharing, 0.9 * *dfs.result.engine->prefix_sharing);
  EXPECT_GT(*blend.result.engine->prefix_sharing, 0.9 * blend.result.plan->planned_sharing);
  EXPECT_LT(blend.result.duration_s, fcfs.result.duration_s);
}

// Results of other simulations have no plan.
TEST(PlannedJob, OtherLoadsHaveNoPlan) {
  const LinearModel model = Device();
  SimulationConfig c = JobConfig(model, "blend");
  c.job.reset();
  c.concurrency = 10;
  const Simulated run = Simulate(c, Mix(10));
  EXPECT_FALSE(run.result.plan);
  EXPECT_EQ(ToJson(run.result).find("\"plan\""), std::string::npos);
}

TEST(PlannedJob, IsDeterministic) {
  const LinearModel model = Device();
  for (const char* preset : {"blend", "random"}) {
    const Simulated a = Simulate(JobConfig(model, preset), Mix(100)), b = Simulate(JobConfig(model, preset), Mix(100));
    EXPECT_EQ(a.hashes, b.hashes);
    EXPECT_EQ(ToJson(a.result), ToJson(b.result)) << "without a stopwatch nothing depends on the machine";
    SimulationConfig c = JobConfig(model, preset);
    c.job->seed = 7;
    EXPECT_NE(Simulate(c, Mix(100)).hashes, a.hashes) << "a different sample or shuffle";
  }
}

// A plan without known lengths does not depend on output lengths until answers have ended.
TEST(PlannedJob, ThePlanLearnsLengthsOnlyFromEndedAnswers) {
  const LinearModel model = Device();
  std::vector<WorkloadRequest> longer = Mix(200);
  PlannedEngine engine{.order = "blend", .kv_tokens = 10'000, .max_model_len = 2048, .default_max_tokens = 1000};
  PlannedLoad load;
  load.cost = CostOfSteps(model, nullptr, 512);
  for (WorkloadRequest& r : longer) r.output_tokens = 2 * r.output_tokens;
  ListedStream one(Mix(200)), two(longer);
  const auto a = PlannedJob::Create(load, engine, &one), b = PlannedJob::Create(load, engine, &two);
  ASSERT_TRUE(a.ok() && b.ok());
  std::vector<int32_t> sample;
  while ((*a)->MostWaiting(0, 100) == 100) {
    const auto x = (*a)->Next(0), y = (*b)->Next(0);
    ASSERT_EQ(x->number, y->number);
    sample.push_back(x->number);
  }
  for (int i = 0; i < 20; ++i) {
    const auto x = (*a)->Next(0), y = (*b)->Next(0);
    ASSERT_EQ(x->number, y->number);
    ASSERT_EQ(x->place, y->place);
  }
  for (const int32_t number : sample) {
    (*a)->OnDone(0, number, static_cast<int32_t>(Mix(200)[static_cast<size_t>(number)].output_tokens));
    (*b)->OnDone(0, number, static_cast<int32_t>(longer[static_cast<size_t>(number)].output_tokens));
  }
  EXPECT_NE((*a)->Next(0)->place.kv_tokens, (*b)->Next(0)->place.kv_tokens);
}

// The plan of a device that reads shared prefixes once counts them once.
TEST(PlannedJob, TheBoundCountsSharedReadsOnce) {
  const LinearModel model = Device();
  SimulationConfig c = JobConfig(model, "blend");
  const double each_s = Simulate(c, Mix(200)).result.plan->bound_s.value();
  c.cascade_attention = true;
  const Simulated once = Simulate(c, Mix(200));
  EXPECT_LT(once.result.plan->bound_s.value(), each_s);
  EXPECT_EQ(once.result.completed, 400);
}

TEST(PlannedJob, ShardsHaveTheSameWorkAndEveryRequestOnce) {
  const LinearModel model = Device();
  const Simulated one = Simulate(JobConfig(model, "blend"), Mix(600));
  double last = one.result.duration_s;
  for (const int32_t replicas : {2, 4}) {
    SimulationConfig c = JobConfig(model, "blend");
    c.replicas = replicas;
    c.job->lengths_known = true;
    const Simulated run = Simulate(c, Mix(600));
    EXPECT_EQ(run.result.completed, 1200);
    EXPECT_EQ(std::set<int64_t>(run.done.begin(), run.done.end()).size(), 1200u);
    for (const auto& done : run.by_replica) EXPECT_NEAR(static_cast<double>(done.size()), 1200.0 / replicas, 120);
    EXPECT_LT(run.result.duration_s, 0.65 * last) << replicas << " shards";
    EXPECT_LT(*run.result.plan->share_of_practical_bound, 1);
    last = run.result.duration_s;
  }
}

// A rejected request completes its turn in the plan, also within the sample.
TEST(PlannedJob, ARejectedRequestIsNotAwaited) {
  const LinearModel model = Device();
  std::vector<WorkloadRequest> requests = Mix(200);
  for (size_t i = 0; i < requests.size(); i += 4) requests[i].prompt_tokens = 5000;
  SimulationConfig c = JobConfig(model, "blend");
  c.job->sample_share = 0.1;
  c.scheduler.limits.max_num_seqs = 4;
  const Simulated run = Simulate(c, requests);
  EXPECT_EQ(run.result.completed, 300);
  EXPECT_EQ(run.result.rejected, 100);
  EXPECT_LT(run.result.plan->sample, 60);
  EXPECT_GE(run.most_waiting, 60) << "the queue is filled after the sample has ended";
}

TEST(PlannedJob, LoadsThatCannotBeAJobAreRejectedWithTheFix) {
  const LinearModel model = Device();
  SimulationConfig c = JobConfig(model, "blend");
  const auto why = [&](std::vector<WorkloadRequest> requests) {
    ListedStream stream(std::move(requests));
    const auto made = Simulation::Create(c, &stream);
    return made.ok() ? "made" : made.status().message();
  };
  std::vector<WorkloadRequest> turns = Mix(1);
  turns[0].conversation = 3;
  EXPECT_NE(why(turns).find("turns of a conversation"), std::string::npos) << why(turns);
  c.concurrency = 5;
  EXPECT_NE(why(Mix(1)).find("concurrency"), std::string::npos);
}

}  // namespace
}  // namespace tactus::sim
