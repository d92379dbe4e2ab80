#include "loop/measured_ratio.h"

#include <algorithm>

namespace tactus {

void MeasuredRatio::Observe(DurationNs measured_ns, DurationNs predicted_ns) {
  const auto predicted = static_cast<double>(predicted_ns);
  window_[observed_++ % kWindow] = {static_cast<double>(measured_ns) / predicted, predicted};
  factor_ = std::clamp(WeightedMedian(), kLeast, kMost);
  high_ = std::clamp(High(), kLeast, kMost);
}

// Behind WeightedMedian, which sorts.
double MeasuredRatio::High() const {
  constexpr size_t kAbove = kWindow / 16;
  const size_t count = std::min(observed_, kWindow), missing = kWindow - count;
  // The first kAbove from above are left out, of the observed and the missing together.
  size_t left = count, unknown = missing;
  for (size_t i = 0; i < kAbove; ++i) {
    const bool next_is_unknown = unknown > 0 && (left == 0 || sorted_[left - 1].ratio <= kUnknown);
    next_is_unknown ? --unknown : --left;
  }
  const double observed = left > 0 ? sorted_[left - 1].ratio : 0;
  return unknown > 0 ? std::max(observed, kUnknown) : observed;
}

double MeasuredRatio::WeightedMedian() {
  const auto end = sorted_.begin() + static_cast<ptrdiff_t>(std::min(observed_, kWindow));
  std::copy_n(window_.begin(), end - sorted_.begin(), sorted_.begin());
  std::sort(sorted_.begin(), end, [](const Observed& a, const Observed& b) { return a.ratio < b.ratio; });
  double all = 0, below = 0;
  for (auto o = sorted_.begin(); o != end; ++o) all += o->weight;
  for (auto o = sorted_.begin(); o != end; ++o) {
    below += o->weight;
    if (2 * below >= all) return o->ratio;
  }
  return 1;
}

}  // namespace tactus
