// Simulated steps that vary as a machine's do. A step's time is multiplied by a factor, drawn from a log-normal
// distribution of median 1: a profile states medians, so half of the steps take longer than it says. (The mean is
// exp(spread^2 / 2): 1.005 with a spread of 10 %.)
//
// The factor is a function of seed, replica and the step's number, so it is the same whatever else is drawn, and for
// every policy. Only the executor asks for it: policies learn of a step's time from its result, as they do in service,
// and the model that they plan with stays as it is. Thread rule: immutable.
#pragma once

#include <string>

#include "base/units.h"
#include "cost/step_spread.h"
#include "tactus/status.h"

namespace tactus::sim {

class StepNoise {
 public:
  StepNoise() = default;  // none: every factor is 1
  StepNoise(const cost::StepSpread& spread, uint64_t seed, int32_t replica);

  double FactorOf(StepId step, bool has_prompt) const;

 private:
  cost::StepSpread spread_;
  uint64_t seed_ = 0, stream_ = 0;
};

// What --step-noise says: "none", "profile" (what `profile` states of itself, a file of --cost; null: step times are no
// profile's) or a percentage of all steps, "10" or "10%". kInvalidArgument names value, limit and fix.
Result<cost::StepSpread> ParseStepNoise(const std::string& text, const cost::StepProfile* profile,
                                        const std::string& cost);

}  // namespace tactus::sim
