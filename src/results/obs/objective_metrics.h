// What /metrics says of objectives, by class: how many were kept, how much of each was left, and what the missed ones
// were missed for. Thread rule: none of its own; callers that share it lock.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "results/obs/prometheus_text.h"
#include "results/obs/run_result.h"
#include "tactus/timeline.h"

namespace tactus::results {

class ObjectiveMetrics {
 public:
  // A request that has ended. `failed`: "cancelled", "error"; empty: its answer is complete. Where an objective was not
  // kept and no time was missed (`misses`), that is the cause.
  void Ended(const EndedRequest& request, const std::array<Miss, kNumObjectives>& misses, std::string_view failed);
  // One that was not taken.
  void Refused(const Slo& slo, std::string_view slo_class);
  void AppendTo(PrometheusText* text) const;

 private:
  struct OfObjective {
    OfObjective();
    int64_t stated = 0;
    BucketHistogram slack;
    std::map<std::string, int64_t, std::less<>> misses;  // by cause
  };
  struct OfClass {
    KeptCount all;
    std::array<OfObjective, kNumObjectives> objectives;
  };
  OfClass& ClassOf(std::string_view name);

  std::map<std::string, OfClass, std::less<>> classes_;
};

}  // namespace tactus::results
