// `tactus models convert IN OUT`.
#pragma once

#include "cli/options/args.h"

namespace tactus::cli {

// Arguments without "models convert". Returns the exit status.
int ConvertCommand(const Args& args);

}  // namespace tactus::cli
