// Statistics of a metric over several seeds: the mean with the 95 % confidence interval of Student's t, and the ratio
// of two metrics. One value gives no interval.
// Thread rule: none.
#pragma once

#include <optional>
#include <span>

#include "base/json_fwd.h"

namespace tactus::results {

struct SeedInterval {
  double mean = 0;
  struct Ends {
    double low = 0, high = 0;
  };
  std::optional<Ends> interval;
};

// Needs at least one value.
SeedInterval MeanOver(std::span<const double> values);
// a over b, all above 0: geometric means, and the interval of the difference of logarithms. `paired`: a[i] and b[i]
// have the same seed, so that effects of the seed cancel; otherwise by Welch. Absent: a value is not above 0, or there
// are none.
std::optional<SeedInterval> RatioOver(std::span<const double> a, std::span<const double> b, bool paired);

Json IntervalJson(const SeedInterval& value);  // {mean, low, high}; low and high null

}  // namespace tactus::results
