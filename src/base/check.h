// Broken invariants. TACTUS_CHECK stays on in every build: it reports the expression, the place and a message, runs the
// crash hook (the engine's dumps plan and seed) and stops. Never for input, configuration or shortage: those are
// values.
#pragma once

#include <string>

namespace tactus {
[[noreturn]] void CheckFailed(const char* expression, const char* file, int line, const std::string& message);
// Called once by the thread whose check failed, before it stops. Returns the previous hook.
using CheckHook = void (*)(const std::string& report);
CheckHook SetCheckHook(CheckHook hook);
}  // namespace tactus

#define TACTUS_CHECK(cond) \
  (__builtin_expect(!!(cond), 1) ? (void)0 : ::tactus::CheckFailed(#cond, __FILE__, __LINE__, std::string()))
#define TACTUS_CHECK_MSG(cond, message) \
  (__builtin_expect(!!(cond), 1) ? (void)0 : ::tactus::CheckFailed(#cond, __FILE__, __LINE__, (message)))
