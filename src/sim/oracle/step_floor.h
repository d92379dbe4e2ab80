// Linear lower bounds on step times: the minimum that a bound over all schedules can charge a request for its tokens,
// whatever steps compute them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/step_time_model.h"

namespace tactus::sim {

// A step of `tokens` tokens takes at least At(tokens, kv_tokens, pairs) nanoseconds, where `kv_tokens` is the sum of
// the contexts of its decodes and of some of its chunks (own tokens included), and `pairs` the query-key pairs of the
// other chunks.
struct StepFloor {
  double fixed_ns = 0, token_ns = 0, kv_token_ns = 0, pair_ns = 0;
  double At(double tokens, double kv_tokens, double pairs) const {
    return fixed_ns + token_ns * tokens + kv_token_ns * kv_tokens + pair_ns * pairs;
  }
};

// The largest possible step.
struct StepLimits {
  int64_t tokens = 0;   // computed in the step, and held as KV while it runs
  int64_t decodes = 0;  // sequences
  int64_t context = 0;  // tokens of one sequence
};

// The query-key pairs of a chunk of `tokens` after `context`.
inline double PairsOf(double tokens, double context) {
  return tokens * (context + (tokens + 1) / 2);
}

// Floors of one pipeline stage, from steps that read the weights for few tokens to those that fill the device. They
// rest on two properties of the model that hold for every model of cost/ (kept_bound_test.cc tests random steps of
// each): 1. A step of n tokens takes at least as long as one of n padded tokens: attention, logits and copies add to
// it. The time of n padded tokens is sampled for every n, so these lines are exact. 2. Between the points of a model's
// tables (eight per octave), the time of attention is nowhere below the linear interpolation. So its rates are the
// minimum over all points, each sampled with steps of many sizes, minus one percent.
std::vector<StepFloor> FloorsOf(const StepTimeModel& times, int32_t stage, const StepLimits& limits);

// The stage with the longest busy time, which is the bottleneck.
int32_t SlowestStage(const StepTimeModel& times, int64_t tokens);

}  // namespace tactus::sim
