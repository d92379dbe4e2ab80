// The crash report of a broken invariant: a description of the step loop on whose thread it broke. The first loop of
// the process installs it as the check hook (base/check.h).
#pragma once

#include <string>

namespace tactus::core {

// While a scope lives, a broken invariant on its thread also prints account(subject). Costs two stores.
class CrashScope {
 public:
  using Account = std::string (*)(const void* subject);
  CrashScope(Account account, const void* subject);
  ~CrashScope();
  CrashScope(const CrashScope&) = delete;
  CrashScope& operator=(const CrashScope&) = delete;

 private:
  Account account_;
  const void* subject_;
};

// Any thread; idempotent. A hook that was installed before is called first.
void InstallCrashReport();

}  // namespace tactus::core
