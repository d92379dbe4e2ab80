// What single tokens cost where steps are full, read off a step-time model: the rates that the bounds of an offline job
// are made of.
#pragma once

#include "base/step_time_model.h"

namespace tactus {

struct StepRates {
  double prompt_token_s = 0;  // of a step with nothing but short prompts, over its tokens; weights are read once
  double kv_token_s = 0;      // more that a step takes where its decodes read one more token's K and V
};

StepRates RatesOf(const StepTimeModel& times, int32_t step_tokens);

}  // namespace tactus
