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
// kCancelled after StopSimulations.
SimulationText Simulate(const OptionTexts& options);

// All of this process, for ever: the interpreter ends.
void StopSimulations();

}  // namespace tactus::python
