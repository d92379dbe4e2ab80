#include "core/loop/crash_report.h"

#include <cstdio>
#include <mutex>
#include <utility>

#include "base/check.h"

namespace tactus::core {
namespace {

thread_local CrashScope::Account t_account = nullptr;
thread_local const void* t_subject = nullptr;
CheckHook g_before = nullptr;

void Report(const std::string& report) {
  if (g_before != nullptr) g_before(report);
  if (t_account == nullptr) return;
  const CrashScope::Account account = std::exchange(t_account, nullptr);  // it may break an invariant too
  // To stderr, as in CheckFailed: the process is about to stop, and nothing else reports why.
  std::fprintf(stderr, "%s\n", account(t_subject).c_str());
}

}  // namespace

CrashScope::CrashScope(Account account, const void* subject)
    : account_(std::exchange(t_account, account)), subject_(std::exchange(t_subject, subject)) {}

CrashScope::~CrashScope() {
  t_account = account_;
  t_subject = subject_;
}

void InstallCrashReport() {
  static std::once_flag once;
  std::call_once(once, [] { g_before = SetCheckHook(&Report); });
}

}  // namespace tactus::core
