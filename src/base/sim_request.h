// A request of a simulation: its true output length is known. Only the simulator, its executor and the oracle predictors may
// include this file (a lint rule): no policy ever sees the length.
#pragma once

#include "tactus/request.h"

namespace tactus {

// Whoever simulates submits requests of this type only; the executor and the oracles cast back.
struct SimRequest : Request {
  int32_t output_tokens = 1;   // >= 1; the model "says" its end-of-text as this token
};

}  // namespace tactus
