// What a broken invariant leaves behind: the account of the step loop on whose thread it broke. Set once, as the check
// hook (base/check.h), by the first loop of the process.
#pragma once

#include <string>

namespace tactus::core {

// While one lives, a broken invariant on this thread also prints what `account` says of `subject`. Two stores.
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

// Any thread, any number of times. A hook that was there before is called first.
void InstallCrashReport();

}  // namespace tactus::core
