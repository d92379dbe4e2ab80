// Straight lines that no step's time falls below: what a bound over all schedules can charge a request for its tokens,
// whatever steps they are computed in.
#pragma once

#include <cstdint>
#include <vector>

#include "base/step_time_model.h"

namespace tactus::sim {

// A step of `tokens` tokens takes at least At(tokens, kv_tokens, pairs) nanoseconds, where `kv_tokens` are the contexts
// of its decodes and of some of its chunks (own tokens included), and `pairs` those of a query and a key of the other
// chunks.
struct StepFloor {
  double fixed_ns = 0, token_ns = 0, kv_token_ns = 0, pair_ns = 0;
  double At(double tokens, double kv_tokens, double pairs) const {
    return fixed_ns + token_ns * tokens + kv_token_ns * kv_tokens + pair_ns * pairs;
  }
};

// The largest step that there can be.
struct StepLimits {
  int64_t tokens = 0;   // computed in it, and held as KV while it runs
  int64_t decodes = 0;  // sequences
  int64_t context = 0;  // tokens of one sequence
};

// The query-key pairs of a chunk of `tokens` behind `context`.
inline double PairsOf(double tokens, double context) {
  return tokens * (context + (tokens + 1) / 2);
}

// Floors of one pipeline stage, from steps that read the weights for few tokens to those that fill the device. They
// rest on two properties of the model, which hold for every model of cost/ (step_floor_test.cc draws steps of each):
//   1. A step of n tokens takes at least as long as one of n padded tokens: attention, logits and copies add to it. The
//      time of n padded tokens is asked for every n, so the lines below it are exact.
//   2. What attention adds is, between the points of the tables that a model is made of (eight to the octave), nowhere
//      less than a line between them. So its rates are the least of all that the points have, each asked beside steps
//      of many sizes, and a hundredth is taken off everything.
std::vector<StepFloor> FloorsOf(const StepTimeModel& times, int32_t stage, const StepLimits& limits);

// The stage that is busy for longest, whose time is the scarcest.
int32_t SlowestStage(const StepTimeModel& times, int64_t tokens);

}  // namespace tactus::sim
