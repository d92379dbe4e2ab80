// Errors in the engine's options that do not depend on the model: found before the model is looked up, so that a
// mistyped flag never costs a model load. Caller's thread.
#pragma once

#include <string>
#include <vector>

#include "tactus/options.h"
#include "tactus/status.h"

namespace tactus::engine {

// The names of --served-model-name, without duplicates, in their order; empty: the model's own name. kInvalidArgument:
// one of several names is empty, or a name is not UTF-8 or is longer than routers accept.
Result<std::vector<std::string>> ServedNames(const EngineOptions& options);

// Checks names and contradictions of flags, that files named by flags can be read, and that --trace-out can be written.
// Errors are those that a start would return.
Status CheckOptions(const EngineOptions& options);

}  // namespace tactus::engine
