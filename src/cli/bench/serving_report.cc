#include "cli/bench/serving_report.h"

#include <algorithm>

#include "results/obs/run_result.h"
#include "results/obs/run_series.h"

namespace tactus::cli {

namespace {

results::RunWindow WindowOf(const ReportInput& input) {
  std::vector<TimeNs> due;
  for (const RequestRecord& r : input.records) due.push_back(r.due_ns);
  std::sort(due.begin(), due.end());
  results::RunWindow window(input.warmup, input.measure, static_cast<int64_t>(due.size()));
  for (const TimeNs at : due) window.Arrived(at);
  return window;
}

}  // namespace

RunResult ResultOf(const ReportInput& input) {
  const results::RunWindow window = WindowOf(input);
  results::RunAccumulator run(true, window);
  int64_t cached = 0, unfinished = 0;
  for (const RequestRecord& r : input.records) {
    if (r.sent_ns > 0) run.Arrived(r.sent_ns);
    if (r.outcome == RequestRecord::Outcome::kPending) {  // cancelled by Ctrl-C
      ++unfinished;
      continue;
    }
    const Slo& slo = r.slo.any() ? r.slo : input.slo;
    const std::string& slo_class = r.slo_class.empty() ? input.slo_class : r.slo_class;
    if (r.outcome == RequestRecord::Outcome::kRejected) {
      run.Rejected(r.due_ns, slo, slo_class, "");
      continue;
    }
    results::EndedRequest e;
    e.ok = r.outcome == RequestRecord::Outcome::kCompleted;
    e.prompt_tokens = r.prompt_tokens;
    e.completion_tokens = r.output_tokens;
    e.arrival_ns = r.due_ns;
    e.done_ns = r.done_ns;
    e.slo = slo;
    e.slo_class = slo_class;
    if (r.first_token_ns > 0) {
      e.ttft_ns = r.first_token_ns - r.due_ns;
      run.Tokens(r.first_token_ns, e.ttft_ns, true);
    }
    TimeNs at_ns = r.first_token_ns;
    for (const DurationNs gap : r.gaps_ns) {
      e.longest_gap_ns = std::max(e.longest_gap_ns, gap);
      ++e.gaps;
      e.late_gaps += e.slo.tbt_ns > 0 && gap > e.slo.tbt_ns;
      run.Tokens(at_ns += gap, gap, false);
      run.ClassGap(at_ns, gap, e.slo, e.slo_class);
    }
    run.Ended(e);
    if (e.ok && window.Holds(e.arrival_ns)) cached += r.cached_tokens;
  }
  RunResult result = run.Outcome();
  result.unfinished = unfinished;
  result.cached_prompt_tokens = cached;
  if (input.rate_asked_per_s > 0) result.request_rate_asked = input.rate_asked_per_s;
  if (input.concurrency > 0) result.concurrency = input.concurrency;
  return result;
}

void AddRows(const ReportInput& input, results::RunFileWriter* file, results::KeptSeries* kept) {
  if (file == nullptr && kept == nullptr) return;
  TimeNs origin_ns = kNever;
  for (const RequestRecord& r : input.records) origin_ns = std::min(origin_ns, r.due_ns);
  struct Moment {
    TimeNs at_ns = 0;
    enum class What : uint8_t { kArrival, kFirstToken, kToken, kEnd } what = What::kArrival;
    DurationNs gap_ns = 0;
    RequestRecord::Outcome outcome = RequestRecord::Outcome::kPending;
  };
  std::vector<Moment> moments;
  int64_t number = 0;
  for (const RequestRecord& r : input.records) {
    using Outcome = RequestRecord::Outcome;
    moments.push_back({r.due_ns - origin_ns, Moment::What::kArrival, 0, r.outcome});
    results::RunRequest row;
    row.number = number++;
    row.arrival_ns = r.due_ns - origin_ns;
    row.slo = r.slo.any() ? r.slo : input.slo;
    row.slo_class = r.slo_class.empty() ? input.slo_class : r.slo_class;
    row.prompt_tokens = r.prompt_tokens;
    row.cached_tokens = r.cached_tokens;
    row.output_tokens = r.output_tokens;
    if (r.first_token_ns > 0) {
      row.first_token_ns = r.first_token_ns - origin_ns;
      moments.push_back({row.first_token_ns, Moment::What::kFirstToken, r.first_token_ns - r.due_ns, r.outcome});
    }
    TimeNs at_ns = r.first_token_ns - origin_ns;
    for (const DurationNs gap : r.gaps_ns) {
      row.longest_gap_ns = std::max(row.longest_gap_ns, gap);
      moments.push_back({at_ns += gap, Moment::What::kToken, gap, r.outcome});
    }
    if (r.outcome == Outcome::kPending) continue;  // cancelled by Ctrl-C
    row.done_ns = r.done_ns - origin_ns;
    moments.push_back({row.done_ns, Moment::What::kEnd, 0, r.outcome});
    const bool ok = r.outcome == Outcome::kCompleted;
    row.finish = ok ? "completed" : r.outcome == Outcome::kRejected ? "rejected" : "failed";
    // A client sees that an objective was missed, but not why.
    const char* cause = ok ? "unknown" : r.outcome == Outcome::kRejected ? "refused" : "error";
    const auto missed = [ok](DurationNs stated, DurationNs taken) { return stated > 0 && (!ok || taken > stated); };
    if (missed(row.slo.ttft_ns, row.first_token_ns < 0 ? kNever : row.first_token_ns - row.arrival_ns))
      row.missed_by[0] = cause;
    if (missed(row.slo.tbt_ns, row.longest_gap_ns)) row.missed_by[1] = cause;
    if (missed(row.slo.jct_ns, row.done_ns - row.arrival_ns)) row.missed_by[2] = cause;
    if (file != nullptr) file->Add(row);
  }
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) { return a.at_ns < b.at_ns; });
  results::RunSeries series(kept != nullptr ? kept->interval_ns() : file->interval_ns(),
                            [file, kept](const results::RunInterval& interval) {
                              if (file != nullptr) file->Add(interval);
                              if (kept != nullptr) kept->Add(interval);
                            });
  for (const Moment& m : moments) {
    switch (m.what) {
      case Moment::What::kArrival:
        series.Arrived(m.at_ns);
        break;
      case Moment::What::kFirstToken:
        series.Tokens(m.at_ns, m.gap_ns, true);
        break;
      case Moment::What::kToken:
        series.Tokens(m.at_ns, m.gap_ns, false);
        break;
      case Moment::What::kEnd:
        series.Ended(m.at_ns, m.outcome == RequestRecord::Outcome::kCompleted  ? results::RunSeries::End::kCompleted
                              : m.outcome == RequestRecord::Outcome::kRejected ? results::RunSeries::End::kRejected
                                                                               : results::RunSeries::End::kFailed);
        break;
    }
  }
  series.Finish();
}

}  // namespace tactus::cli
