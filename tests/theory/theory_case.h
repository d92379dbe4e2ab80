// Simulations with results known from theory: simple step times, generated workloads, and a log of all events as
// integers. Deterministic.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "sim/simulator/simulator.h"

namespace tactus::theory {

// base + per_token x tokens + per_context x KV tokens read by decodes.
class LinearSteps final : public StepTimeModel {
 public:
  LinearSteps(DurationNs base_ns, DurationNs per_token_ns = 0, DurationNs per_context_ns = 0)
      : base_ns_(base_ns), per_token_ns_(per_token_ns), per_context_ns_(per_context_ns) {}
  DurationNs StepTimeNs(const StepShape& s) const override {
    return base_ns_ + per_token_ns_ * (s.tokens() + s.padded_tokens) + per_context_ns_ * s.decode_context_tokens;
  }

 private:
  const DurationNs base_ns_, per_token_ns_, per_context_ns_;
};

struct Arrival {
  TimeNs at_ns = 0;  // ignored in a closed loop
  int32_t prompt_tokens = 1, output_tokens = 1;
};
std::vector<Arrival> Poisson(uint64_t seed, int64_t count, double rate_per_s,
                             const std::function<Arrival(Rng&)>& lengths);

struct Step {
  TimeNs start_ns = 0, end_ns = 0;
  int64_t items = 0, tokens = 0, sampled = 0;
  int64_t in_system = 0;  // with count_in_system: requests at its plan, waiting ones included
};
struct Ended {
  TimeNs arrival_ns = 0, scheduled_ns = 0, first_token_ns = 0, done_ns = 0;
  int32_t prompt_tokens = 0, output_tokens = 0, preemptions = 0, recomputed_tokens = 0;
};
struct Outcome {
  std::vector<Step> steps;
  std::vector<Ended> ended;  // in order of their ends
  EngineStats stats;
  DurationNs busy_ns = 0;  // as counted by the executor
  std::string error;       // empty: the simulation ran to its end
};

struct Case {
  std::string preset = "sarathi-serve";
  int32_t max_num_seqs = 256;
  int64_t blocks = 1 << 20;
  int32_t block_size = 16;
  int32_t max_model_len = 4096;
  int64_t token_budget = 0;
  int64_t concurrency = 0;  // > 0: closed loop
  int64_t swap_blocks = 0;
  std::string predictor;
  bool count_in_system = false;  // presets with a fixed budget only
};
Outcome Simulate(const Case& c, const StepTimeModel& model, const std::vector<Arrival>& arrivals);

// Mean of dependent observations with its confidence interval by batch means: 40 batches in order of time, Student's t
// with 39 degrees of freedom at 99.9 % (3.558).
struct Estimate {
  double mean = 0, half_width = 0;
  bool Contains(double value) const { return value >= mean - half_width && value <= mean + half_width; }
};
Estimate BatchMeans(const std::vector<double>& values);

}  // namespace tactus::theory
