// A step-time model with results computable by hand: base + per prompt token + per decode + per context token, divided
// into equal stages.
#pragma once

#include "base/step_time_model.h"

namespace tactus::sim {

struct LinearModel final : StepTimeModel {
  DurationNs base_ns = 1'000'000, prefill_ns = 10'000, decode_ns = 100'000, context_ns = 0, swap_ns = 0, padding_ns = 0,
             send_ns = 0;
  int32_t num_stages = 1;

  DurationNs StageTimeNs(const StepShape& s, int32_t) const override {
    return base_ns + prefill_ns * s.prefill_tokens() + decode_ns * s.decodes + context_ns * s.decode_context_tokens +
           swap_ns * s.swap_blocks + padding_ns * s.padded_tokens;
  }
  DurationNs StepTimeNs(const StepShape& s) const override {
    return StageTimeNs(s, 0) * num_stages + send_ns * (num_stages - 1);
  }
  DurationNs SendTimeNs(const StepShape&) const override { return send_ns; }
  int32_t stages() const override { return num_stages; }
};

}  // namespace tactus::sim
