// The version that `tactus --version`, GET /version and every trace carry.
#pragma once
#include <string>
namespace tactus {
const char* Version();    // "0.1.0"
std::string BuildInfo();  // compiler, build type, git commit where known
}  // namespace tactus
