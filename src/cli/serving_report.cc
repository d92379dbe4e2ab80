#include "cli/serving_report.h"

#include <algorithm>

#include "obs/run_result.h"

namespace tactus::cli {

namespace {

RunWindow WindowOf(const ReportInput& input) {
  std::vector<TimeNs> due;
  for (const RequestRecord& r : input.records) due.push_back(r.due_ns);
  std::sort(due.begin(), due.end());
  RunWindow window(input.warmup, input.measure, static_cast<int64_t>(due.size()));
  for (const TimeNs at : due) window.Arrived(at);
  return window;
}

}  // namespace

RunResult ResultOf(const ReportInput& input) {
  const RunWindow window = WindowOf(input);
  RunAccumulator run(true, window);
  int64_t cached = 0, unfinished = 0;
  for (const RequestRecord& r : input.records) {
    if (r.sent_ns > 0) run.Arrived(r.sent_ns);
    if (r.outcome == RequestRecord::Outcome::kPending) {  // cut off by Ctrl-C
      ++unfinished;
      continue;
    }
    const Slo& slo = r.slo.any() ? r.slo : input.slo;
    const std::string& slo_class = r.slo_class.empty() ? input.slo_class : r.slo_class;
    if (r.outcome == RequestRecord::Outcome::kRejected) {
      run.Rejected(r.due_ns, slo, slo_class, "");
      continue;
    }
    EndedRequest e;
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

}  // namespace tactus::cli
