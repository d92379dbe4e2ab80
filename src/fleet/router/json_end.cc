#include "fleet/router/json_end.h"

#include <limits>

namespace tactus::fleet {

void JsonEnd::Feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (state_ == State::kNone) return;
    if (in_string_) {
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
      continue;
    }
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    const bool opens = c == '{' || c == '[';
    if (state_ != State::kInside) {
      state_ = state_ == State::kBefore && opens ? State::kInside : State::kNone;
      depth_ = 1;
    } else if (c == '"') {
      in_string_ = true;
    } else if (opens) {
      if (++depth_ == std::numeric_limits<int>::max()) state_ = State::kNone;
    } else if (c == '}' || c == ']') {
      if (--depth_ == 0) state_ = State::kAfter;
    }
  }
}

}  // namespace tactus::fleet
