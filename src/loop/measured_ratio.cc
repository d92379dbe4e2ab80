#include "loop/measured_ratio.h"

#include <algorithm>

namespace tactus {

void MeasuredRatio::Observe(DurationNs measured_ns, DurationNs predicted_ns) {
  const auto predicted = static_cast<double>(predicted_ns);
  window_[observed_++ % kWindow] = {static_cast<double>(measured_ns) / predicted, predicted};
  factor_ = std::clamp(WeightedMedian(), kLeast, kMost);
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
