// Common parts of the project's programs: tactus, and the separate tactus-tools and tactus-epp, which it executes for
// commands that are not needed for serving. A first build makes tactus only.
#pragma once

#include <functional>

#include "cli/options/args.h"

namespace tactus::cli {

// The body of a program's main(): opens standard streams, installs signal handlers (cli/options/interrupt.h), turns
// exceptions into one line, flushes output. Returns the exit status.
int RunProgram(const std::function<int()>& main);
// From now on signals end the process in the command's name. `name` must live until exit; `serves`: a stop by signal is
// not a failure.
void BeginCommand(const char* name, bool serves = false);

// Replaces the process by tactus-tools, with the command's name first in `args`. Returns only if it is missing.
int ExecTools(const Args& args);
int ExecEpp(const Args& args);  // the same for `tactus epp`

}  // namespace tactus::cli
