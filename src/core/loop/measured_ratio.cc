#include "core/loop/measured_ratio.h"

#include <algorithm>

namespace tactus::core {

void MeasuredRatio::Observe(DurationNs measured_ns, DurationNs predicted_ns) {
  const auto predicted = static_cast<double>(predicted_ns);
  window_[next_] = {static_cast<double>(measured_ns) / predicted, predicted};
  next_ = (next_ + 1) % kWindow;
  count_ = std::min(count_ + 1, kWindow);
  Update();
}

void MeasuredRatio::Forget() {
  if (count_ == 0) return;
  --count_;
  Update();
}

void MeasuredRatio::Update() {
  factor_ = std::clamp(WeightedMedian(), kLeast, kMost);
  high_ = std::clamp(High(), kLeast, kMost);
}

// Precondition: WeightedMedian has filled sorted_.
double MeasuredRatio::High() const {
  constexpr size_t kAbove = kWindow / 16;
  // Skips the kAbove largest of the observed and missing ratios.
  size_t left = count_, unknown = kWindow - count_;
  for (size_t i = 0; i < kAbove; ++i) {
    const bool next_is_unknown = unknown > 0 && (left == 0 || sorted_[left - 1].ratio <= kUnknown);
    next_is_unknown ? --unknown : --left;
  }
  const double observed = left > 0 ? sorted_[left - 1].ratio : 0;
  return unknown > 0 ? std::max(observed, kUnknown) : observed;
}

double MeasuredRatio::WeightedMedian() {
  const auto end = sorted_.begin() + static_cast<ptrdiff_t>(count_);
  for (size_t i = 0; i < count_; ++i) sorted_[i] = window_[(next_ + kWindow - count_ + i) % kWindow];
  std::sort(sorted_.begin(), end, [](const Observed& a, const Observed& b) { return a.ratio < b.ratio; });
  double all = 0, below = 0;
  for (auto o = sorted_.begin(); o != end; ++o) all += o->weight;
  for (auto o = sorted_.begin(); o != end; ++o) {
    below += o->weight;
    if (2 * below >= all) return o->ratio;
  }
  return 1;
}

}  // namespace tactus::core
