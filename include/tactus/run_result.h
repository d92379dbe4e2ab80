// The result of a run: one object for serving, load tests, simulations and replays (docs/reference/api.md, "Result").
// Unknown values are absent, null in JSON, never 0.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tactus {

// Summary of many values. Percentiles are nearest-rank: the smallest value such that at least that share of all values
// are at most it; from a histogram within 0.4 %, exact where every value was kept.
struct Summary {
  bool known = false;  // false: there were no values
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};

// Requests that stated an objective, and those of them that kept it.
struct KeptCount {
  int64_t stated = 0, kept = 0;
  int64_t least_ns = 0, most_ns = 0;  // range of the stated objectives; 0: none stated, or range not recorded
  std::optional<double> attainment() const {
    return stated > 0 ? std::optional<double>(static_cast<double>(kept) / static_cast<double>(stated)) : std::nullopt;
  }
  KeptCount& operator+=(const KeptCount& other) {
    stated += other.stated;
    kept += other.kept;
    if (other.most_ns == 0) return *this;
    least_ns = most_ns == 0 ? other.least_ns : std::min(least_ns, other.least_ns);
    most_ns = std::max(most_ns, other.most_ns);
    return *this;
  }
};

// Requests with objectives. A rejected, failed or cancelled request keeps none.
struct ObjectiveCounts {
  int64_t stated = 0, kept = 0;  // any objective stated; all of them kept
  KeptCount ttft, tbt, jct;      // one objective each
  KeptCount gaps;                // gaps between tokens of requests with a TBT objective; those within it
  std::optional<double> slo_attainment() const { return KeptCount{stated, kept}.attainment(); }
  std::optional<double> jct_attainment() const { return jct.attainment(); }
  ObjectiveCounts& operator+=(const ObjectiveCounts& other);
};

// The requests of one class (Request::slo_class). Latencies cover completed requests.
struct ClassFigures : ObjectiveCounts {
  int64_t completed = 0, failed = 0, rejected = 0;
  Summary ttft_ms, longest_gap_ms, tpot_ms, e2e_ms;  // longest_gap_ms: the longest gap of each request
  Summary tbt_ms;  // every gap between two tokens of a stream, completed or not; load tests only
};

// Figures that only the engine knows.
struct EngineFigures {
  int64_t steps = 0;
  int64_t preemptions = 0, recomputed_tokens = 0;
  int64_t swapped_sequences = 0, swapped_blocks = 0;       // blocks: out plus in
  int64_t draft_tokens = 0, accepted_draft_tokens = 0;     // guesses verified; guesses accepted
  uint64_t plan_hash = 0;                                  // over every plan, in order
  std::optional<double> budget_utilization;                // planned tokens / token budget
  std::optional<double> kv_utilization;                    // blocks in use / all, mean over steps
  std::optional<double> prefix_sharing;                    // prompt tokens cached / looked up, at first starts
  std::optional<double> mean_batch;                        // sequences per step
  Summary ttft_prediction_error;                           // |predicted by the gate - measured| / measured
  std::optional<double> decision_p50_us, decision_p99_us;  // time to plan a step, by the system's clock
  Summary step_ms;                                         // the executor's time per step
  Summary scheduling_delay_ms;                             // arrival to the first share of a step
};

// Idle time of pipeline stages, by cause (docs/concepts/simulator.md, "Bubbles").
struct BubbleFigures {
  using ByCause = std::vector<std::pair<std::string, double>>;  // name of the cause, time
  struct Stage {
    double busy_s = 0;
    ByCause idle_s;
  };
  std::vector<Stage> stages;    // in layer order
  Summary per_request_ms;       // idle time before all steps with the request, over all stages
  ByCause per_request_mean_ms;  // the same, mean over requests
};

// Figures that only a simulator knows.
struct SimulatedFigures {
  std::optional<double> mfu, mbu;  // shares of the devices' peak arithmetic and memory bandwidth
  std::optional<BubbleFigures> bubbles;
  std::string extrapolation;    // how far step times were extrapolated beyond measurements; empty: not
  int64_t clipped_prompts = 0;  // prompts cut to the context (--long-prompts clip)
  int64_t cut_outputs = 0;      // answers cut at max_tokens
  int64_t rows_dropped = 0;     // rows of the workload file without a prompt or an answer
  int64_t replicas = 1;
  // Sequences that moved between replicas; those of them that were preempted and moved without KV; attempts after which
  // the sequence stayed; tokens whose KV was sent. Absent: migration is off.
  struct Migrations {
    int64_t moved = 0, without_kv = 0, failed = 0, tokens = 0;
    // Sequences that stayed, by reason: they ended first; they computed more during the move than was reserved; the
    // destination had no room; the destination refused them.
    int64_t ended = 0, outgrew = 0, no_room = 0, refused = 0;
  };
  std::optional<Migrations> migrations;
  // Replicas that scaled with load: bounds, starts, drains, and the mean number over the whole run, including starting
  // and draining replicas. Absent: the number is fixed.
  struct Scaling {
    int64_t least = 0, most = 0, started = 0, drained = 0;
    double mean_replicas = 0;
  };
  std::optional<Scaling> scaling;
  // Requests with an objective below the shortest step, of one token: no schedule can keep it.
  int64_t objectives_below_a_step = 0;
  double shortest_step_ms = 0;
};

// Figures of an offline job with a plan (docs/how-to/batch.md).
struct PlanFigures {
  std::string order;
  int64_t requests = 0;                    // sequences
  int64_t sample = 0;                      // of them, run first to learn answer lengths
  int64_t key_tokens = 0;                  // granularity at which shared prefixes were detected
  double optimal_sharing = 0;              // upper bound for any order: share of the prompts' tokens
  double planned_sharing = 0;              // for this order, with the KV memory as cache
  std::optional<double> achieved_sharing;  // of the tokens looked up, recomputed prompts included
  double density = 0;                      // compute time over memory time, shared prefixes computed once
  std::optional<double> bound_s;  // the longer of both times, a lower bound for any order; absent: device speed unknown
  std::optional<double> practical_bound_s;                         // with the measured cost of overlap
  std::optional<double> share_of_bound, share_of_practical_bound;  // bound over the actual time
  double reading_s = 0, planning_s = 0;                            // wall-clock time
};

struct RunResult {
  // Answers that ended in the measured part of a run, whenever their request arrived.
  struct Served {
    int64_t requests = 0, prompt_tokens = 0, output_tokens = 0;
  };

  double duration_s = 0;                  // first arrival to last end, or the measured part
  std::optional<double> measured_from_s;  // after the first arrival; absent: the whole run is measured
  std::optional<Served> served;           // counts of the measured part
  int64_t completed = 0;
  int64_t failed = 0;                            // ended by an error or cancelled
  int64_t rejected = 0;                          // refused: queue full, or can never fit
  std::optional<int64_t> unfinished;             // the run was stopped before they ended (simulations, load tests)
  std::string first_rejection;                   // its reason; empty: none, or unknown
  int64_t prompt_tokens = 0, output_tokens = 0;  // of requests that completed
  std::optional<int64_t> cached_prompt_tokens;   // as the server reported to its client

  ObjectiveCounts objectives;  // of all requests
  // Requests with a class or an objective, by class: "" without a name, "other" beyond the first 32.
  std::map<std::string, ClassFigures> classes;
  Summary ttft_ms;             // arrival to first token
  Summary normalized_ttft_ms;  // the same, per prompt token
  Summary tbt_ms;              // every gap between two tokens of a stream
  Summary tpot_ms;             // first token to last / (tokens - 1), per request
  Summary e2e_ms;              // arrival to last token, completed requests

  std::optional<double> request_rate_asked, request_rate_achieved;  // per second
  std::optional<int64_t> concurrency;                               // of a closed loop

  std::optional<EngineFigures> engine;
  std::optional<SimulatedFigures> simulated;
  std::optional<PlanFigures> plan;

  // Per second; absent if no time passed.
  std::optional<double> request_throughput() const { return PerSecond(served ? served->requests : completed); }
  std::optional<double> input_token_throughput() const {
    return PerSecond(served ? served->prompt_tokens : prompt_tokens);
  }
  std::optional<double> output_token_throughput() const {
    return PerSecond(served ? served->output_tokens : output_tokens);
  }
  // Requests that kept their objectives; absent if none stated any.
  std::optional<double> goodput() const { return objectives.stated > 0 ? PerSecond(objectives.kept) : std::nullopt; }

 private:
  std::optional<double> PerSecond(int64_t n) const {
    return duration_s > 0 ? std::optional<double>(static_cast<double>(n) / duration_s) : std::nullopt;
  }
};

// One line of JSON. Invalid UTF-8 is replaced.
std::string ToJson(const RunResult& result);

}  // namespace tactus
