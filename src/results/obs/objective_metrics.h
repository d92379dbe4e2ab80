// Metrics of objectives for /metrics, by class: how many were met, their slack, and the causes of missed ones. Thread
// rule: none; callers that share it lock.
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
  // Adds an ended request. `failed`: "cancelled" or "error"; empty: its answer is complete. If an objective was not met
  // and no time was missed (`misses`), `failed` is the cause.
  void Ended(const EndedRequest& request, const std::array<Miss, kNumObjectives>& misses, std::string_view failed);
  // Adds a rejected request.
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
