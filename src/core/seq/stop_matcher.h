// Finds the first stop string in a stream of bytes that arrives token by token. One per choice with stop strings;
// stores only the bytes that a match can still need. Not thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tactus::core {

class StopMatcher {
 public:
  // `stops` (non-empty strings) must outlive the matcher.
  explicit StopMatcher(const std::vector<std::string>* stops);
  // Index of the stop string whose first occurrence ends earliest with these bytes (ties: starts earliest), or -1.
  int Append(std::string_view bytes);

 private:
  const std::vector<std::string>* stops_;
  size_t longest_ = 0;
  std::string tail_;
};

}  // namespace tactus::core
