// An offline job in a simulation: all requests are present from the start. They are planned and released by the same
// feed as in `tactus batch` (offline/plan/job_feed.h), one for each replica's shard.
// The plan knows of output lengths what a batch's plan knows: only max_tokens before answers have ended; with
// `lengths_known` it gets the true lengths, for comparison. Memory: the whole job. Thread rule: as Simulation.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/step_time_model.h"
#include "offline/plan/job_feed.h"
#include "sim/workload/workload.h"
#include "tactus/run_result.h"

namespace tactus::cost {
class CostModel;
}  // namespace tactus::cost

namespace tactus::sim {

struct PlannedLoad {
  double sample_share = 0.01;
  uint64_t seed = 0;           // of the sample, and of order random
  bool lengths_known = false;  // the plan gets the true lengths
  offline::BatchCostModel cost;
  OverlapFit overlap;
};

// What the planner needs to know about the engine.
struct PlannedEngine {
  std::string order;  // the scheduler's order, which names the plan's; fcfs if no plan has that name
  int32_t replicas = 1, block_size = 16, max_num_seqs = 0;
  int64_t kv_tokens = 0, max_model_len = 0, default_max_tokens = 0;
  bool prefix_caching = true;
  bool shared_reads = false;  // cascade attention
  Clock* stopwatch = nullptr;
};

// Costs from a step-time model. `meter` divides them into compute and memory; null: unknown, and only times count.
offline::BatchCostModel CostOfSteps(const StepTimeModel& times, const cost::CostModel* meter, int32_t step_tokens);

class PlannedJob {
 public:
  // Reads the whole workload. kInvalidArgument: turns that depend on answers.
  static Result<std::unique_ptr<PlannedJob>> Create(const PlannedLoad& load, const PlannedEngine& engine,
                                                    WorkloadStream* workload);

  struct Start {
    const WorkloadRequest* work = nullptr;
    int32_t number = 0;  // the request's number in the job
    PlannedPlace place;
  };
  // Absent: every request of the replica's shard has started.
  std::optional<Start> Next(int32_t replica);
  // Most requests that may wait, for a queue of `limit`.
  int32_t MostWaiting(int32_t replica, int32_t limit) const {
    const int32_t most = feeds_[static_cast<size_t>(replica)].most_waiting();
    return most > 0 ? std::min(most, limit) : limit;
  }
  // `output_tokens` 0: rejected.
  void OnDone(int32_t replica, int32_t number, int32_t output_tokens);

  // Figures of the finished part, which took `run_s` seconds, with the true lengths of its answers.
  PlanFigures Figures(double run_s) const;

 private:
  PlannedJob(const PlannedLoad& load, const PlannedEngine& engine) : load_(load), engine_(engine) {}
  Status Read(WorkloadStream* workload, offline::PromptSet* prompts);
  Status Plan(std::shared_ptr<offline::PromptSet> prompts);
  offline::PlanOptions PlanOptions() const;

  const PlannedLoad load_;
  const PlannedEngine engine_;
  offline::PlanOrder order_ = offline::PlanOrder::kFcfs;
  std::vector<WorkloadRequest> requests_;
  offline::PrefixTree tree_;
  std::vector<int32_t> outputs_;  // [request], for finished ones
  std::vector<offline::JobFeed> feeds_;
  DurationNs planning_ns_ = 0;
  int32_t sample_ = 0;
};

}  // namespace tactus::sim
