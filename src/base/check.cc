#include "base/check.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace tactus {
namespace {
std::atomic<CheckHook> g_hook{nullptr};
}  // namespace

CheckHook SetCheckHook(CheckHook hook) {
  return g_hook.exchange(hook);
}

void CheckFailed(const char* expression, const char* file, int line, const std::string& message) {
  std::string report = std::string(file) + ":" + std::to_string(line) + ": broken invariant: " + expression;
  if (!message.empty()) report += ": " + message;
  // The only place where the library prints: the process is about to abort, and no other message reports why.
  std::fprintf(stderr, "%s\n", report.c_str());
  if (CheckHook hook = g_hook.exchange(nullptr)) hook(report);
  std::abort();
}

}  // namespace tactus
