// What is wrong with the engine's options whatever the model is: found before a model is looked for, so that a slip in
// a flag never costs the time of loading one. Caller's thread.
#pragma once

#include <string>
#include <vector>

#include "tactus/options.h"
#include "tactus/status.h"

namespace tactus::engine {

// The names of --served-model-name, each once, in their order; empty: the model's own. kInvalidArgument: an empty name
// among others, one that is not UTF-8 or is longer than a router takes.
Result<std::vector<std::string>> ServedNames(const EngineOptions& options);

// Names and contradictions of flags, files that flags name to be read, and --trace-out, which must be writable. Errors
// are those that a start would end with.
Status CheckOptions(const EngineOptions& options);

}  // namespace tactus::engine
