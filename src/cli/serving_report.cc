#include "cli/serving_report.h"

#include <algorithm>

#include "obs/run_result.h"

namespace tactus::cli {

RunResult ResultOf(const ReportInput& input) {
  RunAccumulator run(true);
  int64_t cached = 0;
  for (const RequestRecord& r : input.records) {
    if (r.sent_ns > 0) run.Arrived(r.sent_ns);
    if (r.outcome == RequestRecord::Outcome::kPending) continue;  // cut off by Ctrl-C
    const Slo& slo = r.slo.any() ? r.slo : input.slo;
    const std::string& slo_class = r.slo_class.empty() ? input.slo_class : r.slo_class;
    if (r.outcome == RequestRecord::Outcome::kRejected) {
      run.Rejected(slo, slo_class);
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
      run.Tokens(e.ttft_ns, true);
    }
    for (const DurationNs gap : r.gaps_ns) {
      e.longest_gap_ns = std::max(e.longest_gap_ns, gap);
      ++e.gaps;
      e.late_gaps += e.slo.tbt_ns > 0 && gap > e.slo.tbt_ns;
      run.Tokens(gap, false);
    }
    run.Ended(e);
    if (e.ok) cached += r.cached_tokens;
  }
  RunResult result = run.Outcome();
  result.unfinished = static_cast<int64_t>(input.records.size()) - result.completed - result.failed - result.rejected;
  result.cached_prompt_tokens = cached;
  if (input.rate_asked_per_s > 0) result.request_rate_asked = input.rate_asked_per_s;
  if (input.concurrency > 0) result.concurrency = input.concurrency;
  return result;
}

}  // namespace tactus::cli
