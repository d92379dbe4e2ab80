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
// The same in debug and sanitizer builds alone: for the edges of the accounting, where a check costs too much to stay
// on.
#ifndef TACTUS_DCHECKS
#define TACTUS_DCHECKS 0
#endif
#if TACTUS_DCHECKS
#define TACTUS_DCHECK(cond) TACTUS_CHECK(cond)
#else
#define TACTUS_DCHECK(cond) (static_cast<void>(sizeof(!(cond))))
#endif
#define TACTUS_CHECK_MSG(cond, message) \
  (__builtin_expect(!!(cond), 1) ? (void)0 : ::tactus::CheckFailed(#cond, __FILE__, __LINE__, (message)))
