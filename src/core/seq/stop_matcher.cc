#include "core/seq/stop_matcher.h"

#include <algorithm>

namespace tactus::core {

StopMatcher::StopMatcher(const std::vector<std::string>* stops) : stops_(stops) {
  for (const std::string& stop : *stops_) longest_ = std::max(longest_, stop.size());
}

int StopMatcher::Append(std::string_view bytes) {
  // A match that ends in the new bytes starts at most longest - 1 bytes before them.
  const size_t old = tail_.size();
  tail_.append(bytes);
  int best = -1;
  size_t best_end = 0, best_begin = 0;
  for (size_t i = 0; i < stops_->size(); ++i) {
    const std::string& stop = (*stops_)[i];
    if (stop.empty()) continue;
    const size_t from = old >= stop.size() ? old - stop.size() + 1 : 0;
    const size_t begin = tail_.find(stop, from);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (best < 0 || end < best_end || (end == best_end && begin < best_begin)) {
      best = static_cast<int>(i);
      best_end = end;
      best_begin = begin;
    }
  }
  if (longest_ > 0 && tail_.size() > longest_ - 1) tail_.erase(0, tail_.size() - (longest_ - 1));
  return best;
}

}  // namespace tactus::core
