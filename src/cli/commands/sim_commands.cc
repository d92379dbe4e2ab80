#include "cli/commands/sim_commands.h"
#include "base/json.h"
#include "base/json_text.h"

#include <cstdio>

#include "base/output_file.h"

namespace tactus::cli {
namespace {

// File names may be invalid UTF-8; invalid bytes are replaced.
}  // namespace

int FailOf(const char* command, const Status& status, int code) {
  std::fprintf(stderr, "tactus %s: %s\n", command, status.message().c_str());
  return code;
}

int ExitCodeOf(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

Status WriteResult(const Json& result, bool json, const std::string& output) {
  if (json) std::printf("%s\n", json_text::JsonText(result).c_str());
  return output.empty() ? Status() : ReplaceFile(output, json_text::JsonText(result, 1) + "\n", "output");
}

}  // namespace tactus::cli
