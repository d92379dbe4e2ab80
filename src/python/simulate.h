// `tactus sim` as a function.
#pragma once

#include <string>
#include <vector>

#include "python/option_texts.h"
#include "sim/sim_options.h"
#include "tactus/stop_token.h"

namespace tactus::python {

struct SimulationText {
  std::string result;  // the JSON object of `tactus sim --json`
  std::vector<std::string> notes;
};

// Once `stop` is set it ends soon, with kCancelled. Throws StatusError.
SimulationText Simulate(const OptionTexts& options, StopToken stop);

// Costs and overlap of an offline job on a device, with which a simulation plans and bounds it. `options`: those of
// `tactus sim` that define step times. Throws StatusError.
sim::PlannedLoad PriceJobOf(const OptionTexts& options);

}  // namespace tactus::python
