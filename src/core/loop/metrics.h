// The engine's metrics, for /metrics and for the run's result. Counts on the engine thread from the step events (plain
// integers and buckets, one uncontended mutex per pass); Text and Outcome copy under that mutex and format outside it,
// so a scrape never waits for compute.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <string_view>

#include "core/kv/kv_cache.h"
#include "core/loop/events.h"
#include "results/obs/objective_metrics.h"
#include "results/obs/prometheus_text.h"
#include "results/obs/run_result.h"

namespace tactus::core {

class EngineMetrics final : public EventSink {
 public:
  // `exact`: keep every latency, for percentiles without bucket error. `window`: the part of the run that the result
  // covers.
  EngineMetrics(std::string model_name, const KvCacheConfig& kv, int64_t token_budget, bool exact = false,
                results::RunWindow window = {});

  void OnStep(const StepEvents& events) override;  // engine thread

  // Any thread.
  void CountArrival(TimeNs arrival_ns);  // of every request, including refused ones
  void CountRejected(const Slo& slo, std::string_view slo_class, std::string_view why, TimeNs arrival_ns = 0);
  std::string Text(const EngineStats& stats) const;
  RunResult Outcome(const EngineStats& stats) const;
  std::string LastSteps() const;  // as Engine::LastSteps

 private:
  // The data of a scrape, copied under the mutex (a few kilobytes).
  struct Counts {
    Counts();
    void AddLatencies(results::PrometheusText* text) const;
    void AddSteps(const EngineStats& stats, results::PrometheusText* text) const;

    results::BucketHistogram ttft_s, gap_s, e2e_s, queue_s, prefill_s, decode_s, inference_s, prompt_tokens,
        generation_tokens, params_max_tokens, params_n, iteration_tokens, step_s, step_ratio, ttft_ratio;
    double predicted_s = 0, measured_s = 0;  // of the steps with a prediction
    int64_t executor_errors = 0;
  };
  void CountDone(const RequestDoneEvent& done);

  const std::string model_name_;
  const KvCacheConfig kv_;
  const int64_t token_budget_;
  mutable std::mutex mutex_;
  Counts counts_;
  results::RunAccumulator run_;
  results::ObjectiveMetrics objectives_;
  std::array<StepRecord, 16> last_steps_{};  // a ring
  size_t steps_ended_ = 0;
};

// Converts the event.
results::EndedRequest EndedOf(const RequestDoneEvent& done);

}  // namespace tactus::core
