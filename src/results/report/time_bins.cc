#include "results/report/time_bins.h"

#include <algorithm>

namespace tactus::results {

void Join(const TimeBins::Bin& from, TimeBins::Bin* into) {
  if (from.weight == 0) return;
  into->least = into->weight == 0 ? from.least : std::min(into->least, from.least);
  into->largest = into->weight == 0 ? from.largest : std::max(into->largest, from.largest);
  into->sum += from.sum;
  into->weight += from.weight;
}

void TimeBins::Add(TimeNs at_ns, double value, double weight) {
  ++used_;
  while (at_ns / width_ns_ >= static_cast<int64_t>(kMostBins)) {
    for (size_t i = 0; i < bins_.size(); ++i) {
      const Bin bin = bins_[i];
      if (i % 2 == 0) bins_[i / 2] = Bin();
      Join(bin, &bins_[i / 2]);
    }
    bins_.resize((bins_.size() + 1) / 2);
    width_ns_ *= 2;
  }
  const auto i = static_cast<size_t>(std::max<int64_t>(at_ns, 0) / width_ns_);
  if (bins_.size() <= i) bins_.resize(i + 1);
  Join({value, value, value * weight, weight}, &bins_[i]);
}

double TimeBins::largest() const {
  double most = 0;
  for (const Bin& bin : bins_) {
    if (bin.weight > 0) most = std::max(most, bin.largest);
  }
  return most;
}

}  // namespace tactus::results
