// The commands under `tactus sim`, each in its own file, and what they have in common. Arguments as in commands.h, the
// sub-command's name removed.
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

// One line on stderr, "tactus sim step: ..."; returns `code`.
int FailOf(const char* command, const Status& status, int code);
// Wrong input is wrong usage; a file that cannot be read or written is a failure.
int ExitCodeOf(const Status& status);
// On stdout as one line, and in the file `output` where it is named. kDataLoss: it could not be written.
Status WriteResult(const Json& result, bool json, const std::string& output);

}  // namespace tactus::cli
