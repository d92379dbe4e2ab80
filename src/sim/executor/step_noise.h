// Random variation of simulated step times. A step's time is multiplied by a factor from a log-normal distribution with
// median 1: a profile states medians, so half of the steps take longer. (The mean is exp(spread^2 / 2): 1.005 with a
// spread of 10 %.)
// The factor is a function of seed, replica and step number, so it does not depend on other draws or on the policy.
// Only the executor uses it: policies learn a step's time from its result, as in service, and their planning model
// stays unchanged. Thread rule: immutable.
#pragma once

#include <string>

#include "base/units.h"
#include "cost/step_tables/step_spread.h"
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

// Parses --step-noise: "none", "profile" (the spread that `profile`, a file of --cost, states; null: step times are not
// from a profile) or a percentage for all steps, "10" or "10%". kInvalidArgument names value, limit and fix.
Result<cost::StepSpread> ParseStepNoise(const std::string& text, const cost::StepProfile* profile,
                                        const std::string& cost);

}  // namespace tactus::sim
