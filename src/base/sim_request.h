// A simulated request, with its true output length and its workload's prediction of it. Only the simulator, its
// executor and the oracle predictors may include this file (a lint rule), so that no policy can use the length.
#pragma once

#include "tactus/request.h"

namespace tactus {

// Simulations submit it, and the oracles cast requests back to it. The simulated executor gets the length from
// SimExecutor::Expect.
struct SimRequest : Request {
  int32_t prompt_tokens = 0;            // >= 1; a simulated prompt has a length and no text
  int32_t output_tokens = 1;            // >= 1; the model's end-of-text is this token
  int64_t index = -1;                   // index in the workload, for observers
  int32_t predicted_output_tokens = 0;  // the workload's prediction; 0: none
};

}  // namespace tactus
