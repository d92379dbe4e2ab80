// How many tokens a request will generate. The only way a policy may know anything about an output's length.
#pragma once

#include "base/units.h"

namespace tactus {

class LengthPredictor {
 public:
  virtual ~LengthPredictor() = default;
  // Predicted output tokens in all (not what is left), >= 1. `attempt` counts earlier predictions that proved too short.
  virtual int32_t PredictOutputTokens(SlotId slot, int32_t prompt_tokens, int32_t attempt) const = 0;
};

}  // namespace tactus
