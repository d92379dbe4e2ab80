// The time of two overlapping parts of a step, one bound by arithmetic and one by memory, compared to the longer one
// alone. Plain data, pure functions.
#pragma once

#include <cstdint>

namespace tactus {

// With x = shorter / longer, both parts take longer * (1 + linear x + quadratic x^2). Zeros mean perfect overlap;
// linear 1 means none, one part after the other. With both >= 0 and quadratic <= 1 the time never falls as a part gets
// longer.
struct OverlapFit {
  double linear = 0;
  double quadratic = 0;

  // The result has the unit of the arguments.
  double Together(double compute, double memory) const {
    const double longer = compute > memory ? compute : memory;
    if (longer <= 0) return 0;
    const double x = (compute > memory ? memory : compute) / longer;
    return longer * (1 + linear * x + quadratic * x * x);
  }
};

inline constexpr OverlapFit kNoOverlap{.linear = 1};

// Tokens of the smallest step that runs in two parts with --overlap nano, where no file of step times names a measured
// number. An estimate: both parts read the weights, and an H100 computes about as many tokens in the time in which it
// reads bf16 weights (790 TFLOP/s, 3.0 TB/s).
inline constexpr int64_t kLeastSplitTokens = 256;

// Measured times of a step, in one unit.
struct OverlapTimes {
  double compute = 0, memory = 0, together = 0;  // arithmetic of a half alone, the other's reads of KV alone, both
  double whole = 0, split = 0;                   // the step in one part and in two

  // OverlapFit::linear of the first three, between 0 (perfect) and 1 (no better than one after the other).
  double Interference() const {
    const double shorter = compute < memory ? compute : memory, longer = compute < memory ? memory : compute;
    if (shorter <= 0) return kNoOverlap.linear;
    const double linear = (together - longer) / shorter;
    return linear < 0 ? 0 : linear > 1 ? 1 : linear;
  }
};

}  // namespace tactus
