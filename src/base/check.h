// Broken invariants. TACTUS_CHECK is active in every build: it reports the expression, the place and a message, runs
// the crash hook (the engine's dumps plan and seed) and aborts. Not for errors of input, configuration or resources,
// which are returned as Status.
#pragma once

#include <string>

namespace tactus {
[[noreturn]] void CheckFailed(const char* expression, const char* file, int line, const std::string& message);
// The hook is called once, by the thread whose check failed, before the abort. Returns the previous hook.
using CheckHook = void (*)(const std::string& report);
CheckHook SetCheckHook(CheckHook hook);
}  // namespace tactus

#define TACTUS_CHECK(cond) \
  (__builtin_expect(!!(cond), 1) ? (void)0 : ::tactus::CheckFailed(#cond, __FILE__, __LINE__, std::string()))
// Active only in debug and sanitizer builds: for checks of accounting that are too expensive for release builds.
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
