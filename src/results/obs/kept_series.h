// A run's time series in memory, for its result object and for people, with or without a run file. Bounded: a longer
// series belongs in a run file. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "results/obs/run_file.h"

namespace tactus::results {

class KeptSeries {
 public:
  static constexpr size_t kMostRows = 100'000;

  explicit KeptSeries(DurationNs interval_ns) : interval_ns_(interval_ns) {}
  void Add(const RunInterval& interval);
  DurationNs interval_ns() const { return interval_ns_; }

  // {"interval_s", "rows": [{"from_s", "arrived", ...}], "left_out"}: columns as in a run file, null if unknown;
  // `left_out`: intervals beyond kMostRows.
  Json ToJson() const;
  std::string Table() const;

 private:
  const DurationNs interval_ns_;
  std::vector<RunInterval> rows_;
  int64_t left_out_ = 0;
};

}  // namespace tactus::results
