#include "core/loop/run_recorder.h"

#include <algorithm>
#include <array>

#include "results/obs/run_result.h"

namespace tactus::core {
namespace {

std::array<bool, kNumObjectives> Stated(const Slo& slo) {
  return {slo.ttft_ns > 0, slo.tbt_ns > 0, slo.jct_ns > 0};
}

}  // namespace

RunRecorder::RunRecorder(std::unique_ptr<results::RunFileWriter> file, TimeNs origin_ns, results::KeptSeries* kept)
    : file_(std::move(file)),
      origin_ns_(origin_ns),
      series_(file_ != nullptr ? file_->interval_ns() : kept->interval_ns(),
              [this, kept](const results::RunInterval& interval) {
                if (file_ != nullptr) file_->Add(interval);
                if (kept != nullptr) kept->Add(interval);
              }) {}

void RunRecorder::Arrived(TimeNs at_ns) {
  std::lock_guard lock(mutex_);
  if (origin_ns_ == kNever) origin_ns_ = at_ns;
  series_.Arrived(Since(at_ns));
}

void RunRecorder::Passed(int32_t replica, const StepEvents& events, const EngineStats& stats) {
  std::lock_guard lock(mutex_);
  DurationNs longest_gap_ns = -1;
  for (const GapEvent& gap : events.gaps) {
    series_.Tokens(Since(events.now_ns), gap.gap_ns, gap.first, gap.count);
    if (!gap.first) longest_gap_ns = std::max(longest_gap_ns, gap.gap_ns);
  }
  for (const StepRecord& s : events.steps) {
    results::RunStep row;
    row.replica = replica;
    row.step = s.step;
    row.start_ns = Since(s.start_ns);
    row.end_ns = Since(s.end_ns);
    row.prompt_tokens = s.prefill_tokens;
    row.prompts = s.prefill_items;
    row.decodes = s.decode_tokens;
    row.running = stats.running;
    row.waiting = stats.waiting;
    if (stats.kv_blocks_total > 0)
      row.kv_used = static_cast<double>(stats.kv_blocks_in_use) / static_cast<double>(stats.kv_blocks_total);
    row.preemptions = s.preemptions;
    if (&s == &events.steps.back()) row.longest_gap_ns = longest_gap_ns;
    if (file_ != nullptr) file_->Add(row);
  }
}

void RunRecorder::Ended(int64_t number, int32_t replica, const RequestDoneEvent& d) {
  const Slo& slo = d.request->slo;
  if (d.refused) {
    Refused(number, d.arrival_ns, d.done_ns, d.prompt_tokens, slo, d.request->slo_class);
    return;
  }
  results::RunRequest row;
  row.number = number;
  row.id = d.request->id;
  row.replica = replica;
  row.arrival_ns = Since(d.arrival_ns);
  // A virtual clock may have scheduled it at 0.
  if (d.scheduled_ns > 0 || d.first_token_ns > 0) row.scheduled_ns = Since(d.scheduled_ns);
  if (d.first_token_ns > 0) row.first_token_ns = Since(d.first_token_ns);
  row.done_ns = Since(d.done_ns);
  row.prompt_tokens = d.prompt_tokens;
  row.cached_tokens = d.cached_tokens;
  row.output_tokens = d.completion_tokens;
  if (d.gaps > 0) row.longest_gap_ns = d.longest_gap_ns;
  row.preemptions = d.preemptions;
  row.recomputed_tokens = d.recomputed_tokens;
  row.finish = FinishReasonName(d.finish);
  row.slo_class = d.request->slo_class;
  row.slo = slo;
  const bool ok = d.finish == FinishReason::kStop || d.finish == FinishReason::kLength;
  const auto stated = Stated(slo);
  for (size_t i = 0; i < kNumObjectives; ++i) {
    if (!stated[i]) continue;
    if (d.misses[i].missed) {
      row.missed_by[i] = CauseName(d.misses[i].cause);
    } else if (!ok) {
      row.missed_by[i] = d.finish == FinishReason::kCancelled ? "cancelled" : "error";
    }
  }
  std::lock_guard lock(mutex_);
  series_.Ended(row.done_ns, ok ? results::RunSeries::End::kCompleted : results::RunSeries::End::kFailed);
  if (file_ != nullptr) file_->Add(row);
}

void RunRecorder::Refused(int64_t number, TimeNs arrival_ns, TimeNs now_ns, int64_t prompt_tokens, const Slo& slo,
                          std::string_view slo_class) {
  results::RunRequest row;
  row.number = number;
  row.arrival_ns = Since(arrival_ns);
  row.done_ns = Since(now_ns);
  row.prompt_tokens = prompt_tokens;
  row.output_tokens = 0;
  row.finish = "rejected";
  row.slo_class = slo_class;
  row.slo = slo;
  const auto stated = Stated(slo);
  for (size_t i = 0; i < kNumObjectives; ++i) {
    if (stated[i]) row.missed_by[i] = "refused";
  }
  std::lock_guard lock(mutex_);
  series_.Ended(row.done_ns, results::RunSeries::End::kRejected);
  if (file_ != nullptr) file_->Add(row);
}

Status RunRecorder::Close(const std::string& result_json) {
  std::lock_guard lock(mutex_);
  series_.Finish();
  return file_ != nullptr ? file_->Close(result_json) : Status();
}

void RecordingSink::OnStep(const StepEvents& events) {
  recorder_->Passed(0, events, stats_());
  for (const RequestDoneEvent& d : events.done) {
    if (d.finish == FinishReason::kMigrated) continue;  // recorded at the replica where it ends
    recorder_->Ended(static_cast<int64_t>(d.handle), 0, d);
  }
}

}  // namespace tactus::core
