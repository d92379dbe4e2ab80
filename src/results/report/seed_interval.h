// What a figure's values over several seeds say of it: its mean with the 95 % confidence interval of Student's t, and
// of two of them their ratio. With one value there is no interval.
//
// Thread rule: none of its own.
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

// Of at least one value.
SeedInterval MeanOver(std::span<const double> values);
// a over b, all above 0: geometric means, and the interval of the difference of logarithms. `paired`: a[i] and b[i]
// come of the same seed, so that what a seed does to both drops out; else by Welch. Absent: a value is not above 0, or
// none is there.
std::optional<SeedInterval> RatioOver(std::span<const double> a, std::span<const double> b, bool paired);

Json IntervalJson(const SeedInterval& value);  // {mean, low, high}; low and high null

}  // namespace tactus::results
