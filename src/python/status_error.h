// Errors of the library as Python exceptions: a Status passes through C++ as an exception and becomes the class of
// tactus.errors with its code. This code throws no other exceptions.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <utility>

#include "tactus/status.h"

namespace tactus::python {

class StatusError final : public std::exception {
 public:
  explicit StatusError(Status status) : status_(std::move(status)) {}
  const Status& status() const { return status_; }
  const char* what() const noexcept override { return status_.message().c_str(); }

 private:
  Status status_;
};

inline void Check(const Status& status) {
  if (!status.ok()) throw StatusError(status);
}
template <class T>
T Take(Result<T> result) {
  Check(result.status());
  return std::move(*result);
}

// Creates the exception object. With the GIL, within a Call (python/calls.h): it runs Python code.
nanobind::object ExceptionOf(const Status& status);
// Throws it through nanobind.
[[noreturn]] void Raise(const Status& status);

}  // namespace tactus::python
