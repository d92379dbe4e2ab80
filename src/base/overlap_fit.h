// How much longer two parts of a step take than the longer one alone when a device runs both at once: the one that
// waits for arithmetic and the one that waits for memory. Plain data, pure functions.
#pragma once

namespace tactus {

// With x = shorter / longer both take longer * (1 + linear x + quadratic x^2). Zeros are perfect overlap; linear 1 is
// none, one part after the other. With both >= 0 and quadratic <= 1 a longer part never makes the whole shorter.
struct OverlapFit {
  double linear = 0;
  double quadratic = 0;

  // In the unit of its arguments.
  double Together(double compute, double memory) const {
    const double longer = compute > memory ? compute : memory;
    if (longer <= 0) return 0;
    const double x = (compute > memory ? memory : compute) / longer;
    return longer * (1 + linear * x + quadratic * x * x);
  }
};

inline constexpr OverlapFit kNoOverlap{.linear = 1};

}  // namespace tactus
