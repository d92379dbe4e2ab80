// A simulation: replicas of the real engine (step loop, scheduler and KV bookkeeping) on one virtual clock, with
// simulated executors instead of devices, a balancer in front, and an arriving workload. The simulated code is the
// serving code.
// Events are arrivals, step ends, and what follows at once from the end of a request. Order at one instant: arrivals,
// then replicas whose step has ended, by index, then follow-ups. So a request that follows from an end (closed loop,
// next turn) comes after the plan made at the end of that step: a client is never faster than the loop.
// Thread rule: one thread; several simulations may run in parallel (RunSimulations). Deterministic: the result depends
// only on configuration and workload. Memory grows with live requests, not with finished ones.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/interfaces/draft_source.h"
#include "core/loop/events.h"
#include "core/loop/run_recorder.h"
#include "core/sched/scheduler.h"
#include "fleet/balance/scaling.h"
#include "results/obs/run_window.h"
#include "sim/executor/sim_executor.h"
#include "sim/simulator/planned_job.h"
#include "sim/workload/workload.h"
#include "tactus/run_result.h"

namespace tactus::sim {

struct SimulationConfig {
  // Engine, the same for every replica. The simulation sets limits.slot_capacity.
  core::SchedulerConfig scheduler;
  std::function<core::InjectedChoices()> injected;  // called once per replica; null: none
  const StepTimeModel* step_time = nullptr;         // must outlive the simulation
  const cost::CostModel* meter = nullptr;           // flops and bytes; may be null
  cost::StepSpread step_spread;                     // variation of step times around step_time; zeros: none
  std::string model_name = "model";
  bool prefix_caching = true;
  bool cascade_attention = false;  // KV of a prefix that decodes share is read once for all of them
  int64_t swap_blocks = 0;
  // Draft tokens per sequence and step, and the acceptance probability of each; 0: no drafts.
  int32_t draft_tokens = 0;
  double draft_acceptance = 0;
  core::DraftKind draft_kind = core::DraftKind::kNgram;

  int32_t replicas = 1;
  std::string balancer = "round-robin";
  std::vector<double> slowness;  // factor on the step times of replica i, by index modulo size; empty: 1
  double balancer_polls = 10;    // per second: how often replicas' states are polled, for balancers that use them
  // Sequences migrate between replicas (fleet/balance/rebalance.h) at polling times. Absent: no migration.
  struct Migration {
    double bytes_per_s = 0;     // of one migration
    DurationNs latency_ns = 0;  // of each of its two rounds: while the sequence runs, and while it is paused
    int64_t token_bytes = 0;    // KV bytes per token
    int64_t room_blocks = 0;    // a replica's host memory for arriving sequences
  };
  std::optional<Migration> migration;
  // Autoscaling by load (fleet/balance/scaling.h) at polling times; `replicas` is the maximum. Absent: all replicas run
  // from start to end.
  std::optional<fleet::ScalingOptions> scaling;
  int64_t priority_headroom = 0;  // KV tokens (route::Fleet::SetHeadroom) for requests with priority below 0

  // Load.
  std::optional<PlannedLoad> job;     // all requests are present from the start and run as planned
  int64_t concurrency = 0;            // > 0: closed loop; the workload's arrival times are not used
  DurationNs client_gap_ns = 0;       // mean time from an answer's end to the client's next request
  int64_t max_queue = 0;              // waiting sequences per replica, beyond which requests are rejected; 0: no limit
  int64_t default_max_tokens = 4096;  // for requests without max_tokens
  bool exact_max_tokens = false;      // requests state their true length (as benchmark clients do with ignore_eos)
  bool clip_prompts = false;          // cut prompts beyond the context instead of refusing the request
  // For requests without objectives, class or client in the workload.
  Slo slo;
  std::string slo_class;
  std::string client;                                      // for predictors by client; empty: unknown
  std::shared_ptr<const std::vector<int32_t>> priorities;  // by index in the workload; null: the workload's
  results::RunLength warmup,
      measure;  // the measured part (results/obs/run_window.h); neither given: everything
  uint64_t seed = 0;

  // Output.
  Clock* stopwatch = nullptr;      // times the scheduler's decisions, which take real time; null: not measured
  bool exact_percentiles = false;  // keeps every latency in memory
  std::string requests_out;        // CSV, one line per request; empty: none
  std::string steps_out;           // CSV, one line per step; empty: none
  std::string trace_out;           // binary step trace (one replica: this file, else FILE.0, FILE.1, ...)
  std::function<void(int32_t replica, const StepPlan&, TimeNs start_ns, TimeNs end_ns)> on_step;
  std::function<void(const WorkloadRequest&, int32_t replica, const core::RequestDoneEvent&)> on_done;
  // Called for each request submitted to an engine; not for those that no engine of this size can run.
  std::function<void(const WorkloadRequest&, TimeNs arrival_ns, const SimRequest&)> on_submit;
  core::RunRecorder* recorder = nullptr;  // records this run; must outlive it; its owner closes it
  core::EventSink* observer = nullptr;    // also receives every replica's events
};

struct SimProgress {
  int64_t ended = 0, total = 0, steps = 0;
  TimeNs now_ns = 0;
};

class Simulation {
 public:
  // `workload` must outlive the simulation. kInvalidArgument: errors of scheduler, balancer or predictor, a load
  // without rate, times or concurrency, or values out of range.
  static Result<std::unique_ptr<Simulation>> Create(const SimulationConfig& config, WorkloadStream* workload);
  ~Simulation();

  // Runs to the end, or until `keep_going` (called regularly; may be null) returns false, which keeps the partial
  // result. Not ok: a file could not be written.
  Status Run(const std::function<bool(const SimProgress&)>& keep_going = {});
  bool finished() const;  // every request has ended

  std::string Describe() const;  // the scheduler
  SimProgress progress() const;
  EngineStats Stats() const;  // sum over all replicas
  TimeNs first_arrival_ns() const;
  TimeNs last_end_ns() const;
  const SimExecutor& executor(int32_t replica) const;
  std::vector<uint64_t> plan_hashes() const;  // one per replica
  // The result so far. Without decision times it is the same on every machine.
  RunResult Outcome() const;

 private:
  struct Impl;
  explicit Simulation(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::sim
