#include "cli/sim_commands.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/output_file.h"

namespace tactus::cli {
namespace {

// File names and the like need not be UTF-8; what is not is replaced.
std::string Text(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

int FailOf(const char* command, const Status& status, int code) {
  std::fprintf(stderr, "tactus %s: %s\n", command, status.message().c_str());
  return code;
}

int ExitCodeOf(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

Status WriteResult(const nlohmann::ordered_json& result, bool json, const std::string& output) {
  if (json) std::printf("%s", Text(result, -1).c_str());
  return output.empty() ? Status() : ReplaceFile(output, Text(result, 1), "output");
}

}  // namespace tactus::cli
