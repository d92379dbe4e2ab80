// A request of a simulation: its true output length is known, and what its workload predicts of it. Only the simulator,
// its executor and the oracle predictors may include this file (a lint rule): no policy ever sees the length.
#pragma once

#include "tactus/request.h"

namespace tactus {

// What simulations submit; the oracles cast back. The simulated executor is told by SimExecutor::Expect.
struct SimRequest : Request {
  int32_t prompt_tokens = 0;            // >= 1; a simulated prompt has a length and no text
  int32_t output_tokens = 1;            // >= 1; the model "says" its end-of-text as this token
  int64_t index = -1;                   // of the workload, for whoever observes
  int32_t predicted_output_tokens = 0;  // as the workload states it; 0: it does not
};

}  // namespace tactus
