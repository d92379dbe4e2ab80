// Errors as values. A fault of a client or of a configuration is a Status; a shortage (no free block) is an ordinary
// return value; a broken invariant is TACTUS_CHECK (base/check.h). The library never prints, never exits and lets no
// exception cross a public function.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace tactus {

// One code per case that an HTTP front end distinguishes; serve/ maps each to one status line.
enum class StatusCode {
  kOk = 0,
  kInvalidArgument,    // 400: a value that can never work; names the value, the limit and the fix
  kUnauthenticated,    // 401
  kNotFound,           // 404: model, route, file
  kTooLarge,           // 413: body or prompt over its limit
  kResourceExhausted,  // 503: queue full; try again later
  kTooManyRequests,    // 429: this client has too many open requests; try again later
  kUnavailable,        // 503: draining or not ready
  kCancelled,          // 499: the client or an operator stopped it
  kDeadlineExceeded,   // 408: request time-out
  kDataLoss,           // a corrupt, truncated or hostile file
  kUnimplemented,      // 400: known, but not implemented; never ignored
  kInternal,           // 500: a fault of this program
};

const char* StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  // `param` names the field or flag at fault, empty where there is none.
  Status(StatusCode code, std::string message, std::string param = {})
      : code_(code), message_(std::move(message)), param_(std::move(param)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& param() const { return param_; }
  // kResourceExhausted: nanoseconds until a retry makes sense; 0: unknown.
  int64_t retry_after_ns() const { return retry_after_ns_; }
  void set_retry_after_ns(int64_t ns) { retry_after_ns_ = ns; }
  std::string ToString() const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
  std::string param_;
  int64_t retry_after_ns_ = 0;
};

inline Status InvalidArgument(std::string message, std::string param = {}) {
  return Status(StatusCode::kInvalidArgument, std::move(message), std::move(param));
}
inline Status NotFound(std::string message, std::string param = {}) {
  return Status(StatusCode::kNotFound, std::move(message), std::move(param));
}
inline Status DataLoss(std::string message) {
  return Status(StatusCode::kDataLoss, std::move(message));
}
inline Status Internal(std::string message) {
  return Status(StatusCode::kInternal, std::move(message));
}
inline Status Unimplemented(std::string message, std::string param = {}) {
  return Status(StatusCode::kUnimplemented, std::move(message), std::move(param));
}

// A value, or the Status that explains its absence. Reading the value of a failed Result is a programming error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<1>, std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::in_place_index<0>, std::move(status)) {  // NOLINT(google-explicit-constructor)
    assert(!std::get<0>(state_).ok());
  }
  bool ok() const { return state_.index() == 1; }
  const Status& status() const {
    static const Status kOk;
    return ok() ? kOk : std::get<0>(state_);
  }
  T& value() & { return std::get<1>(state_); }
  const T& value() const& { return std::get<1>(state_); }
  T&& value() && { return std::get<1>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<Status, T> state_;
};

#define TACTUS_CONCAT_INNER(a, b) a##b
#define TACTUS_CONCAT(a, b) TACTUS_CONCAT_INNER(a, b)
#define TACTUS_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    ::tactus::Status tactus_status_ = (expr);        \
    if (!tactus_status_.ok()) return tactus_status_; \
  } while (false)
// TACTUS_ASSIGN_OR_RETURN(auto x, F()): moves the value out or returns the error.
#define TACTUS_ASSIGN_OR_RETURN(lhs, expr) \
  TACTUS_ASSIGN_OR_RETURN_IMPL(TACTUS_CONCAT(tactus_result_, __LINE__), lhs, expr)
#define TACTUS_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return tmp.status();                \
  lhs = std::move(tmp).value()

}  // namespace tactus
