#include "sim/find_largest.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tactus::sim {
namespace {

constexpr double kGrowth = 2;

double Rounded(const LargestRange& range, double value) {
  return std::clamp(range.whole ? std::round(value) : value, range.low, range.high);
}

bool Narrow(const LargestRange& range, double held, double broke) {
  if (range.whole && broke - held <= 1) return true;
  return broke <= held * (1 + range.tolerance);
}

// The next value to test; absent: done.
std::optional<double> Next(const LargestRange& range, const Largest& found) {
  if (!found.held && !found.broke) return Rounded(range, range.start);
  if (!found.broke) {
    if (*found.held >= range.high) return std::nullopt;
    return Rounded(range, *found.held * kGrowth);
  }
  if (!found.held) {
    if (*found.broke <= range.low) return std::nullopt;
    return Rounded(range, range.whole ? std::floor(*found.broke / kGrowth) : *found.broke / kGrowth);
  }
  if (Narrow(range, *found.held, *found.broke)) return std::nullopt;
  const double middle = std::sqrt(*found.held * *found.broke);
  return range.whole ? std::clamp(std::round(middle), *found.held + 1, *found.broke - 1) : middle;
}

}  // namespace

Result<Largest> FindLargest(const LargestRange& range, const std::function<Result<bool>(double)>& holds) {
  TACTUS_CHECK_MSG(range.low > 0 && range.low <= range.high && range.tolerance > 0, "a range to search");
  Largest found;
  while (const auto value = Next(range, found)) {
    const Result<bool> held = holds(*value);
    if (!held.ok() && held.status().code() == StatusCode::kCancelled) {
      found.finished = false;
      return found;
    }
    if (!held.ok()) return held.status();
    (*held ? found.held : found.broke) = *value;
  }
  return found;
}

}  // namespace tactus::sim
