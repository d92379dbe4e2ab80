#include "results/obs/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace tactus::results {

// Values below 2 * kPerOctave have one bucket each (exact); above, the top 8 bits select the bucket.
int Histogram::Bucket(int64_t value) {
  const auto v = static_cast<uint64_t>(value);
  if (v < 2 * kPerOctave) return static_cast<int>(v);
  const int octave = std::bit_width(v) - 8;  // >= 1: number of low bits dropped
  return octave * kPerOctave + static_cast<int>(v >> octave);
}

double Histogram::Middle(int bucket) {
  if (bucket < 2 * kPerOctave) return bucket;
  const int octave = bucket / kPerOctave - 1;
  const double low = std::ldexp(static_cast<double>(bucket - octave * kPerOctave), octave);
  return low + std::ldexp(0.5, octave) - 0.5;  // the bucket's whole values: low .. low + 2^octave - 1
}

Histogram::Histogram() : counts_(static_cast<size_t>(Bucket((int64_t{1} << 62) - 1)) + 1) {}

void Histogram::Add(int64_t value, int64_t count) {
  value = std::clamp<int64_t>(value, 1, (int64_t{1} << 62) - 1);
  counts_[static_cast<size_t>(Bucket(value))] += static_cast<uint64_t>(count);
  count_ += count;
  sum_ += static_cast<double>(value) * static_cast<double>(count);
  max_ = std::max(max_, value);
}

void Histogram::Merge(const Histogram& other) {
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
}

double Histogram::Quantile(double q) const {
  if (count_ == 0) return 0;
  const auto rank = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(q * static_cast<double>(count_))));
  uint64_t seen = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= rank) return std::min(Middle(static_cast<int>(i)), static_cast<double>(max_));
  }
  return static_cast<double>(max_);
}

Summary Histogram::Summarize(double scale) const {
  Summary s;
  if (count_ == 0) return s;
  s.known = true;
  s.mean = sum_ / static_cast<double>(count_) * scale;
  s.p50 = Quantile(0.5) * scale;
  s.p90 = Quantile(0.9) * scale;
  s.p95 = Quantile(0.95) * scale;
  s.p99 = Quantile(0.99) * scale;
  s.max = static_cast<double>(max_) * scale;
  return s;
}

}  // namespace tactus::results
