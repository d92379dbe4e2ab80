// A histogram in logarithmic buckets: any positive value from 1 to 2^62 with a relative error of at most 0.4 % (128
// buckets per octave, values reported at the bucket's geometric middle). Fixed memory, no allocation after
// construction, O(1) Add. One writer; readers on other threads take Snapshot copies made by the writer's owner.
#pragma once

#include <cstdint>
#include <vector>

#include "tactus/run_result.h"

namespace tactus::results {

class Histogram {
 public:
  Histogram();
  // Adds `count` equal values (equal gaps of one step). Values below 1 count as 1.
  void Add(int64_t value, int64_t count = 1);
  void Merge(const Histogram& other);
  int64_t count() const { return count_; }
  double sum() const { return sum_; }
  int64_t max() const { return max_; }
  // The smallest value v such that at least q of all values are <= v, within the bucket's error; 0 when empty. 0 < q
  // <= 1.
  double Quantile(double q) const;
  // All values multiplied by `scale` (1e-6: nanoseconds to milliseconds).
  Summary Summarize(double scale) const;

 private:
  static constexpr int kPerOctave = 128;
  static int Bucket(int64_t value);
  static double Middle(int bucket);
  std::vector<uint64_t> counts_;
  int64_t count_ = 0;
  double sum_ = 0;
  int64_t max_ = 0;
};

}  // namespace tactus::results
