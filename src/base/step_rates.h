// The cost of single tokens in full steps, derived from a step-time model, for the bounds of an offline job.
#pragma once

#include "base/step_time_model.h"

namespace tactus {

struct StepRates {
  double prompt_token_s = 0;  // time of a step with only short prompts / its tokens; weights are read once
  double kv_token_s = 0;      // additional step time per K and V token that its decodes read
};

StepRates RatesOf(const StepTimeModel& times, int32_t step_tokens);

}  // namespace tactus
