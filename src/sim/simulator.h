// A simulation: replicas of the engine (its own step loop, scheduler and KV bookkeeping) on one virtual clock,
// simulated executors in the place of devices, a balancer before them, a workload that arrives. What is simulated is
// what is served.
//
// Events are arrivals, the ends of steps, and whatever follows at once from the end of a request. At one instant: first
// arrivals, then the replicas whose step has ended, in order of their index, then what followed. A request that follows
// from an end (closed loop, next turn) therefore comes after the plan that the same step's end brought about: a client
// is never faster than the loop.
//
// Thread rule: one thread; several simulations may run side by side (RunSimulations). Deterministic: the result follows
// from configuration and workload alone. Memory grows with live requests, not with finished ones.
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
#include "sim/planned_job.h"
#include "sim/sim_executor.h"
#include "sim/workload.h"
#include "tactus/run_result.h"

namespace tactus::sim {

struct SimulationConfig {
  // Engine, the same for every replica. limits.slot_capacity is set by the simulation.
  core::SchedulerConfig scheduler;
  std::function<core::InjectedChoices()> injected;  // called once per replica; null: none
  const StepTimeModel* step_time = nullptr;         // outlives the simulation
  const cost::CostModel* meter = nullptr;           // flops, bytes, extrapolation; may be null
  cost::StepSpread step_spread;                     // of the steps about step_time; zeros: each takes just that
  std::string model_name = "model";
  bool prefix_caching = true;
  bool cascade_attention = false;  // decodes that share a prefix read it once for all of them
  int64_t swap_blocks = 0;
  // Guesses at what follows sequences: of one in one step, and the chance of each to be right; 0: none are made.
  int32_t draft_tokens = 0;
  double draft_acceptance = 0;
  core::DraftKind draft_kind = core::DraftKind::kNgram;

  int32_t replicas = 1;
  std::string balancer = "round-robin";
  std::vector<double> slowness;  // of replica i: times as long a step, by the value at i modulo its size; empty: 1
  double balancer_polls = 10;    // a second: how often replicas are asked what they do, by balancers that go by it
  // Sequences that run move between replicas (fleet/balance/rebalance.h), at the times at which those are asked.
  // Nothing: they stay.
  struct Migration {
    double bytes_per_s = 0;     // of one move
    DurationNs latency_ns = 0;  // of each of its two rounds: while the sequence goes on, and while it is paused
    int64_t token_bytes = 0;    // of KV
    int64_t room_blocks = 0;    // host memory of a replica for those that come
  };
  std::optional<Migration> migration;
  // Replicas come and go by load (fleet/balance/scaling.h), at the times at which they are asked; `replicas` is the
  // most there can be. Nothing: all are there from the beginning to the end.
  std::optional<fleet::ScalingOptions> scaling;
  int64_t priority_headroom = 0;  // KV tokens (route::Fleet::SetHeadroom), of requests whose priority is below 0

  // Load.
  std::optional<PlannedLoad> job;  // all requests are there from the beginning, and run as their plan has it
  int64_t concurrency = 0;         // > 0: closed loop; the workload's arrival times are not used
  DurationNs client_gap_ns = 0;    // mean time from an answer's end to the same client's next request
  int64_t max_queue = 0;           // sequences that may wait at a replica, beyond it requests are rejected; 0: no limit
  int64_t default_max_tokens = 4096;  // what the server assumes of a request that states no max_tokens
  bool exact_max_tokens = false;      // requests state their true length (as benchmark clients do with ignore_eos)
  bool clip_prompts = false;          // cut prompts beyond the context instead of refusing the request
  // What requests have for which the workload states no objective, no class, no client.
  Slo slo;
  std::string slo_class;
  std::string client;                                      // for predictors by client; empty: not known
  std::shared_ptr<const std::vector<int32_t>> priorities;  // by index in the workload; null: as the workload states
  results::RunLength warmup,
      measure;  // what counts in the result (results/obs/run_window.h); neither given: everything
  uint64_t seed = 0;

  // Output.
  Clock* stopwatch = nullptr;      // of the scheduler's decisions, which take real time; null: they are not measured
  bool exact_percentiles = false;  // keeps every latency in memory
  std::string requests_out;        // CSV, one line per request; empty: none
  std::string steps_out;           // CSV, one line per step; empty: none
  std::string trace_out;           // binary step trace (one replica: this file, else FILE.0, FILE.1, ...)
  std::function<void(int32_t replica, const StepPlan&, TimeNs start_ns, TimeNs end_ns)> on_step;
  std::function<void(const WorkloadRequest&, int32_t replica, const core::RequestDoneEvent&)> on_done;
  // A request that could run, as it reaches the engine; those that no engine of this size takes are not shown.
  std::function<void(const WorkloadRequest&, TimeNs arrival_ns, const SimRequest&)> on_submit;
  core::RunRecorder* recorder = nullptr;  // of this one run; outlives it, and is closed by its owner
  core::EventSink* observer = nullptr;    // sees every replica's events too
};

struct SimProgress {
  int64_t ended = 0, total = 0, steps = 0;
  TimeNs now_ns = 0;
};

class Simulation {
 public:
  // `workload` outlives the simulation. kInvalidArgument: the scheduler's, the balancer's and the predictor's
  // complaints, a load that is not stated (no rate, times or concurrency), values out of range.
  static Result<std::unique_ptr<Simulation>> Create(const SimulationConfig& config, WorkloadStream* workload);
  ~Simulation();

  // Runs to the end, or until `keep_going` (asked now and then; may be null) says no; what was done until then counts.
  // Not ok: a file could not be written.
  Status Run(const std::function<bool(const SimProgress&)>& keep_going = {});
  bool finished() const;  // every request has ended

  std::string Describe() const;  // of the scheduler
  SimProgress progress() const;
  EngineStats Stats() const;  // of all replicas together
  TimeNs first_arrival_ns() const;
  TimeNs last_end_ns() const;
  const SimExecutor& executor(int32_t replica) const;
  std::vector<uint64_t> plan_hashes() const;  // one per replica
  // What it has brought so far. Without its decision times it is the same on every machine.
  RunResult Outcome() const;

 private:
  struct Impl;
  explicit Simulation(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::sim
