#include "tactus/status.h"

#include "tactus/request.h"

namespace tactus {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid argument";
    case StatusCode::kUnauthenticated:
      return "unauthenticated";
    case StatusCode::kNotFound:
      return "not found";
    case StatusCode::kTooLarge:
      return "too large";
    case StatusCode::kResourceExhausted:
      return "resource exhausted";
    case StatusCode::kTooManyRequests:
      return "too many requests";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kDeadlineExceeded:
      return "deadline exceeded";
    case StatusCode::kDataLoss:
      return "data loss";
    case StatusCode::kUnimplemented:
      return "unimplemented";
    case StatusCode::kInternal:
      return "internal error";
  }
  return "unknown";
}

std::string Status::ToString() const {
  if (ok()) return "ok";
  std::string text = StatusCodeName(code_);
  text += ": ";
  text += message_;
  if (!param_.empty()) text += " (" + param_ + ")";
  return text;
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
    case FinishReason::kMigrated:
      return "migrated";
  }
  return "unknown";
}

}  // namespace tactus
