// How long a step will take. cost/ implements it (roofline, measured table); the engine injects it into policies and
// simulated executors. Pure: the same shape gives the same time.
#pragma once

#include "base/units.h"

namespace tactus {

struct StepShape {
  int64_t prefill_tokens = 0;
  int64_t prefill_context_tokens = 0;   // KV tokens that the chunks attend to, summed over chunks
  int64_t decodes = 0;
  int64_t decode_context_tokens = 0;    // KV tokens that the decodes attend to, summed
};

class StepTimeModel {
 public:
  virtual ~StepTimeModel() = default;
  virtual DurationNs StepTimeNs(const StepShape& shape) const = 0;
  // Token counts of a step are best a multiple of this (the kernels' tile).
  virtual int32_t tile_tokens() const { return 1; }
};

}  // namespace tactus
