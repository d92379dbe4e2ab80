// `tactus sim` as a function.
#pragma once

#include <string>

#include "python/option_texts.h"

namespace tactus::python {

struct SimulationText {
  std::string result;  // the JSON object of `tactus sim --json`
  std::vector<std::string> notes;
};

// Called without the GIL. Ctrl-C ends it with KeyboardInterrupt where Python's main thread calls it. Throws StatusError
// and nanobind::python_error.
SimulationText Simulate(const OptionTexts& options);

}  // namespace tactus::python
