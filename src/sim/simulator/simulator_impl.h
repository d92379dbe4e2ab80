// Internals of Simulation, shared by simulator.cc (events) and sim_result.cc (the result object).
#pragma once

#include <deque>
#include <optional>
#include <queue>
#include <span>
#include <tuple>

#include "core/loop/metrics.h"
#include "core/loop/replica.h"
#include "fleet/balance/fleet.h"
#include "fleet/balance/scaling.h"
#include "sim/executor/sim_drafts.h"
#include "sim/logs/request_log.h"
#include "sim/logs/step_log.h"
#include "sim/simulator/due_times.h"
#include "sim/simulator/migrations.h"
#include "sim/simulator/simulator.h"
#include "sim/workload/prompt_keys.h"

namespace tactus::sim {

struct Simulation::Impl {
  // A live request, to which events refer.
  struct Live {
    WorkloadRequest work;
    RequestHandle handle = 0;
    int32_t replica = 0;
    TimeNs arrival_ns = 0;
    std::shared_ptr<const SimRequest> request;  // kept for live requests if sequences migrate
    int32_t job_number = 0;                     // in the planned job
    PlannedPlace place;
  };
  class ReplicaSink final : public core::EventSink {
   public:
    ReplicaSink(Impl* sim, int32_t replica) : sim_(sim), replica_(replica) {}
    bool wants_tokens() const override { return false; }
    void OnStep(const core::StepEvents& events) override { sim_->OnStep(replica_, events); }

   private:
    Impl* const sim_;
    const int32_t replica_;
  };
  struct SimReplica {
    std::unique_ptr<SimExecutor> executor;
    std::unique_ptr<ReplicaSink> sink;
    std::unique_ptr<SimDrafts> drafts;  // null: no drafts
    std::unique_ptr<core::Replica> core;
    core::StepLoop& loop() const { return core->loop(); }
    OwnerTable owners;          // with prefix caching
    int32_t high_priority = 0;  // number of high-priority requests present
  };

  Impl(const SimulationConfig& c, WorkloadStream* w) : config(c), workload(*w) {}
  Status MakeReplicas();
  Status MakeReplica(int32_t index);

  // --- events (simulator.cc; fleet events: simulated_fleet.cc) ---
  void FillClosedLoop();
  void AdvanceTo(TimeNs t);
  std::span<SimReplica> GroupOf(size_t replica);
  TimeNs MayPlanNs(size_t replica);
  void RunPass(size_t replica);
  void Wake(int32_t replica) {  // schedules its next pass now at the latest
    const auto i = static_cast<size_t>(replica);
    next_pass.Set(i, std::min(next_pass[i], clock.NowNs()));
  }
  void BeginTogether();
  bool FetchArrival();
  void FillQueue(int32_t replica);
  void CountArrival(TimeNs arrival_ns);
  void Place(const WorkloadRequest& work, TimeNs arrival_ns);
  Live* NewLive(const WorkloadRequest& work, TimeNs arrival_ns, int32_t replica);
  void Enter(Live* live);
  Result<core::PreparedRequest> Prepare(const WorkloadRequest& work,
                                        const std::shared_ptr<const SimRequest>& request) const;
  void Refuse(const WorkloadRequest& work, const Slo& slo, const std::string& why);
  void Followed(const WorkloadRequest& ended);
  void OnStep(int32_t replica, const core::StepEvents& events);
  TimeNs NextEventNs() const;
  void AskReplicas();
  void MakeMigrations();
  void MakeScaler();
  void Scale();
  void CopyViews();
  RequestHandle Arrive(int32_t from, RequestHandle handle, int32_t to, core::ImportedSequence imported);
  void Left(int32_t replica, const core::RequestDoneEvent& d);
  fleet::RouteRequest RouteOf(const WorkloadRequest& work);
  static bool IsHighPriority(const WorkloadRequest& work) { return work.priority < 0; }
  int32_t RoutedTokens(const WorkloadRequest& work) const {
    return static_cast<int32_t>(std::min<int64_t>(work.prompt_tokens, limits.max_model_len));
  }

  Live* NewLive();
  Status MakeJob();
  int32_t QueueLimit() const;
  EngineStats Merged() const;

  const SimulationConfig config;
  WorkloadStream& workload;
  core::IntakeLimits limits;  // per replica
  int32_t capacity = 0;       // sequences per replica
  ManualClock clock;
  std::unique_ptr<fleet::Fleet> fleet;
  std::unique_ptr<Migrations> migrations;  // null: no migration
  std::unique_ptr<fleet::Scaler> scaler;   // null: a fixed number of replicas
  std::vector<fleet::ReplicaView> views;   // scratch
  TimeNs next_poll_ns = kNever;            // time of the next poll of the replicas
  std::vector<Hash128> placement_keys;     // of the request being placed, if the balancer uses them
  std::vector<SimReplica> replicas;
  DueTimes next_pass;            // of each replica
  std::vector<JointStep> joint;  // scratch

  WorkloadRequest arriving;  // the next arrival
  bool has_arriving = false;
  std::unique_ptr<PlannedJob> job;  // null: not an offline job
  // Requests that clients will send later, by time.
  struct Later {
    TimeNs at_ns = 0;
    WorkloadRequest work;
    // Earliest first; at the same time, by workload order.
    bool operator<(const Later& other) const {
      return std::tie(other.at_ns, other.work.index) < std::tie(at_ns, work.index);
    }
  };
  std::priority_queue<Later> later;
  std::vector<WorkloadRequest> due;      // follow-ups at this instant
  std::vector<WorkloadRequest> placing;  // the follow-ups being placed
  std::deque<Live> live_records;
  std::vector<Live*> free_records;

  std::unique_ptr<core::EngineMetrics> metrics;
  std::unique_ptr<RequestLog> log;
  std::unique_ptr<StepLog> step_log;
  int64_t ended = 0, cut_outputs = 0, clipped_prompts = 0, objectives_below_a_step = 0;
  DurationNs shortest_step_ns = 0;
  TimeNs first_arrival_ns = kNever, last_end_ns = 0;
  int64_t passes = 0, steps = 0;  // of all replicas
  bool done = false;
};

}  // namespace tactus::sim
