// Argument type and exit statuses of every command.
#pragma once

#include <string>
#include <vector>

namespace tactus::cli {

using Args = std::vector<std::string>;  // without program and command name

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

}  // namespace tactus::cli
