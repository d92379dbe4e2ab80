// Predicts the time of a step. cost/ implements it (roofline, fitted operators, measured profiles, tables); the engine
// passes it to policies and the simulated executor. Pure: the same shape gives the same time. Times are integer
// nanoseconds.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "base/units.h"

namespace tactus {

// One prompt chunk of a step: `tokens` new positions that attend to `context_tokens` before them and causally to each
// other.
struct ChunkShape {
  int32_t context_tokens = 0;
  int32_t tokens = 0;
};

// Decodes with a common KV prefix, on a device whose attention reads it once for all of them (cascade attention):
// `decodes` of the step share their first `tokens`.
struct PrefixShape {
  int32_t tokens = 0;
  int32_t decodes = 0;
};

struct StepShape {
  std::span<const ChunkShape> chunks;  // in plan order
  int64_t decodes = 0;                 // sequences that decode one token each
  int64_t decode_context_tokens = 0;   // KV tokens that the decodes read, summed, each one's own new token included
  // Each decode is in at most one; decode_context_tokens counts shared tokens for every decode. A model may ignore
  // prefixes: it then predicts the step as if every decode read them.
  std::span<const PrefixShape> prefixes;
  int64_t logit_rows = 0;     // rows through lm_head (and sampled)
  int64_t padded_tokens = 0;  // additional padding (--pad)
  int64_t swap_blocks = 0;    // KV blocks copied to or from host memory before the step

  int64_t prefill_tokens() const {
    int64_t sum = 0;
    for (const ChunkShape& c : chunks) sum += c.tokens;
    return sum;
  }
  int64_t tokens() const { return prefill_tokens() + decodes; }
};

// A replica's part of a step of several replicas: without tokens where it has no step. `factor`: on its times.
struct JointStep {
  StepShape shape;
  double factor = 1;
};

class StepTimeModel {
 public:
  virtual ~StepTimeModel() = default;
  // From the first stage's start to the last one's end of a step that runs alone: all stages and the sends between
  // them.
  virtual DurationNs StepTimeNs(const StepShape& shape) const = 0;
  // Replicas that share experts run their steps together: number of such replicas (1: none), and the time of their
  // steps, of which each has one.
  virtual int32_t replicas_together() const { return 1; }
  virtual DurationNs TogetherNs(std::span<const JointStep> steps) const {
    double longest_ns = 0;
    for (const JointStep& step : steps) {
      if (step.shape.tokens() == 0) continue;
      longest_ns = std::max(longest_ns, step.factor * static_cast<double>(StepTimeNs(step.shape)));
    }
    return std::llround(longest_ns);
  }
  // Token counts of a step are best a multiple of this (the kernels' tile).
  virtual int32_t tile_tokens() const { return 1; }

  // Pipeline stages: StepTimeNs is the sum of StageTimeNs over all stages and of SendTimeNs between neighbours.
  virtual int32_t stages() const { return 1; }
  virtual DurationNs StageTimeNs(const StepShape& shape, int32_t stage) const {
    return stage == 0 ? StepTimeNs(shape) : 0;
  }
  virtual DurationNs SendTimeNs(const StepShape&) const { return 0; }

  // How far `most`, the largest value of each queried field, exceeds the measured range: "" (within it, or the model is
  // not measured) or "steps of up to 20,480 tokens (measured up to 8,192: 2.5 x beyond)".
  virtual std::string Extrapolation(const StepShape& /*most*/) const { return ""; }
};

}  // namespace tactus
