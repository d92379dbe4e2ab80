// What the programs of the project have in common: tactus, and beside it tactus-tools and tactus-epp, which it becomes
// for the commands that serving does without. A first build makes tactus alone.
#pragma once

#include <functional>

#include "cli/options/args.h"

namespace tactus::cli {

// The body of a program's main(): standard streams are open, signals end it with a line (cli/options/interrupt.h),
// exceptions end as one line, what was printed is written. Returns the exit status.
int RunProgram(const std::function<int()>& main);
// Signals are those of the command from here on. `name` lives on; `serves`: what asks it to stop is no failure.
void BeginCommand(const char* name, bool serves = false);

// The process becomes tactus-tools, with the command's name first in `args`. Returns only where it is missing.
int ExecTools(const Args& args);
int ExecEpp(const Args& args);  // likewise, of `tactus epp`

}  // namespace tactus::cli
