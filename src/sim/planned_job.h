// An offline job in a simulation: a workload whose requests are all there from the beginning, planned and handed out
// by the feed that `tactus batch` has (offline/plan/job_feed.h), one for each replica's shard.
//
// The plan knows of lengths what a batch's plan knows, nothing beyond max_tokens before answers have ended, unless it
// is told all for comparison. Memory: the whole job. Thread rule: as Simulation.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/step_time_model.h"
#include "offline/plan/job_feed.h"
#include "sim/workload.h"
#include "tactus/run_result.h"

namespace tactus::cost {
class CostModel;
}  // namespace tactus::cost

namespace tactus::sim {

struct PlannedLoad {
  double sample_share = 0.01;
  uint64_t seed = 0;           // of the sample, and of order random
  bool lengths_known = false;  // the plan is told true lengths
  offline::BatchCostModel cost;
  OverlapFit overlap;
};

// What the planner must know of the engine.
struct PlannedEngine {
  std::string order;  // of the scheduler, whose name is the plan's; one that goes by no plan: fcfs
  int32_t replicas = 1, block_size = 16, max_num_seqs = 0;
  int64_t kv_tokens = 0, max_model_len = 0, default_max_tokens = 0;
  bool prefix_caching = true;
  bool shared_reads = false;  // cascade attention
  Clock* stopwatch = nullptr;
};

// Costs by a step-time model. `meter` says what they are made of; null: that is not known, and only times count.
offline::BatchCostModel CostOfSteps(const StepTimeModel& times, const cost::CostModel* meter, int32_t step_tokens);

class PlannedJob {
 public:
  // Takes the whole workload. kInvalidArgument: turns that follow from answers.
  static Result<std::unique_ptr<PlannedJob>> Create(const PlannedLoad& load, const PlannedEngine& engine,
                                                    WorkloadStream* workload);

  struct Start {
    const WorkloadRequest* work = nullptr;
    int32_t number = 0;  // of the request in the job
    PlannedPlace place;
  };
  // None: the replica's shard has all begun.
  std::optional<Start> Next(int32_t replica);
  // How many may wait in a queue of `limit`.
  int32_t MostWaiting(int32_t replica, int32_t limit) const {
    const int32_t most = feeds_[static_cast<size_t>(replica)].most_waiting();
    return most > 0 ? std::min(most, limit) : limit;
  }
  // 0: it was refused.
  void OnDone(int32_t replica, int32_t number, int32_t output_tokens);

  // With the lengths that answers had; of what has ended in `run_s` seconds.
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
  std::vector<int32_t> outputs_;  // [request] of those that have ended
  std::vector<offline::JobFeed> feeds_;
  DurationNs planning_ns_ = 0;
  int32_t sample_ = 0;
};

}  // namespace tactus::sim
