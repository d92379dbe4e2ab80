// Calls a function at the end of a scope, also after an exception. Thread rule: that of the scope.
#pragma once

#include <utility>

namespace tactus {

template <class F>
class OnExit {
 public:
  explicit OnExit(F f) : f_(std::move(f)) {}
  ~OnExit() {
    if (!cancelled_) f_();
  }
  OnExit(const OnExit&) = delete;
  OnExit& operator=(const OnExit&) = delete;
  void Cancel() { cancelled_ = true; }

 private:
  F f_;  // must not throw
  bool cancelled_ = false;
};

}  // namespace tactus
