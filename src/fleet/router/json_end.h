// Finds the end of a JSON text as it passes, without parsing it: for an answer where nothing else distinguishes its end
// from a cut.
#pragma once

#include <string_view>

namespace tactus::fleet {

class JsonEnd {
 public:
  void Feed(std::string_view bytes);
  // An object or array has ended, and only white space has followed.
  bool reached() const { return state_ == State::kAfter; }

 private:
  enum class State { kBefore, kInside, kAfter, kNone };
  State state_ = State::kBefore;
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

}  // namespace tactus::fleet
