// The engine's metrics: what /metrics and the result object at exit say. Counts on the engine thread from the step
// events (plain integers and buckets, no locks in the hot path beyond one uncontended mutex per pass); Text and
// ResultJson copy under that mutex and format outside it, so a scrape never waits for compute.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "kv/kv_cache.h"
#include "loop/events.h"
#include "obs/histogram.h"
#include "obs/prometheus_text.h"

namespace tactus {

class EngineMetrics final : public EventSink {
 public:
  EngineMetrics(std::string model_name, const KvCacheConfig& kv, int64_t token_budget);

  void OnStep(const StepEvents& events) override;  // engine thread

  // Any thread.
  void CountRejected();
  std::string Text(const EngineStats& stats) const;
  // The result object of docs/api.md ("Result"), as JSON. `duration_ns`: since the engine started.
  std::string ResultJson(const EngineStats& stats, DurationNs duration_ns) const;

 private:
  // What a scrape shows; copied whole under the mutex (a few kilobytes).
  struct Counts {
    Counts();
    BucketHistogram ttft_s, gap_s, e2e_s, queue_s, prefill_s, decode_s, prompt_tokens, generation_tokens,
        iteration_tokens, step_s;
    int64_t completed = 0, failed = 0, prompt_total = 0, completion_total = 0, executor_errors = 0, rejected = 0;
    // By SLO class (empty: no class stated): requests that stated an SLO, and those that kept it.
    struct SloCount {
      int64_t stated = 0, kept = 0;          // whatever they stated
      int64_t jct_stated = 0, jct_kept = 0;  // job completion time alone
    };
    std::map<std::string, SloCount> slo;
  };
  // What the result object at exit shows too: large, so a scrape does not copy it.
  struct Percentiles {
    Histogram ttft_ns, normalized_ttft_ns, gap_ns, tpot_ns, e2e_ns, delay_ns, decision_ns;
  };
  void CountDone(const RequestDoneEvent& done);

  const std::string model_name_;
  const KvCacheConfig kv_;
  const int64_t token_budget_;
  mutable std::mutex mutex_;
  Counts counts_;
  Percentiles percentiles_;
};

}  // namespace tactus
