// Writes the events of step loops to a run file (results/obs/run_file.h): steps, ended requests and the time series,
// which may also be kept for the result. Used by the engine and by a simulation's replicas.
//
// Thread rule: any thread; one mutex, held for the formatting of a few rows.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/loop/events.h"
#include "results/obs/kept_series.h"
#include "results/obs/run_file.h"
#include "results/obs/run_series.h"

namespace tactus::core {

class RunRecorder {
 public:
  // Times in the file count from `origin_ns`, by the clock of the loops; kNever: from the first arrival. One of `file`
  // and `kept` may be null; with both, the file's interval applies.
  RunRecorder(std::unique_ptr<results::RunFileWriter> file, TimeNs origin_ns, results::KeptSeries* kept = nullptr);

  void Arrived(TimeNs at_ns);  // every request, including refused ones
  // Records steps and tokens of a pass, not the requests that ended in it. `stats`: of the pass before, which planned
  // the step that has just ended.
  void Passed(int32_t replica, const StepEvents& events, const EngineStats& stats);
  void Ended(int64_t number, int32_t replica, const RequestDoneEvent& done);
  void Refused(int64_t number, TimeNs arrival_ns, TimeNs now_ns, int64_t prompt_tokens, const Slo& slo,
               std::string_view slo_class);
  // Call once, after all events. kDataLoss: the file is incomplete.
  Status Close(const std::string& result_json);

 private:
  TimeNs Since(TimeNs ns) const { return origin_ns_ == kNever ? 0 : std::max<TimeNs>(0, ns - origin_ns_); }

  std::mutex mutex_;
  const std::unique_ptr<results::RunFileWriter> file_;
  TimeNs origin_ns_;
  results::RunSeries series_;
};

// Records the events of one engine; the recorder outlives it.
class RecordingSink final : public EventSink {
 public:
  using StatsNow = std::function<EngineStats()>;
  RecordingSink(RunRecorder* recorder, StatsNow stats) : recorder_(recorder), stats_(std::move(stats)) {}
  bool wants_tokens() const override { return false; }
  void OnStep(const StepEvents& events) override;

 private:
  RunRecorder* const recorder_;
  const StatsNow stats_;
};

}  // namespace tactus::core
