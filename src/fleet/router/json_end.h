// Finds where a JSON text ends as it passes, without reading it otherwise: for an answer whose end nothing else tells
// from a cut.
#pragma once

#include <string_view>

namespace tactus::fleet {

class JsonEnd {
 public:
  void Feed(std::string_view bytes);
  // An object or an array has come to its end, and nothing but space has followed.
  bool reached() const { return state_ == State::kAfter; }

 private:
  enum class State { kBefore, kInside, kAfter, kNone };
  State state_ = State::kBefore;
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

}  // namespace tactus::fleet
