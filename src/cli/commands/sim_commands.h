// The commands under `tactus sim`, one file each, and what they share. Arguments as in commands.h, without the
// sub-command's name.
#pragma once

#include <string>

#include "base/json_fwd.h"
#include "cli/commands/commands.h"
#include "tactus/status.h"

namespace tactus::cli {

int SimCapacityCommand(const Args& args);
int SimSweepCommand(const Args& args);
int SimCompareCommand(const Args& args);
int SimStepCommand(const Args& args);
int SimChunkCommand(const Args& args);

// Prints one line on stderr, "tactus sim step: ..."; returns `code`.
int FailOf(const char* command, const Status& status, int code);
// Invalid input is wrong usage (2); a file that cannot be read or written is a failure (1).
int ExitCodeOf(const Status& status);
// Writes the result to stdout as one line and to the file `output` if given. kDataLoss: the file could not be written.
Status WriteResult(const Json& result, bool json, const std::string& output);

}  // namespace tactus::cli
