#include "fleet/router/route_recorder.h"

#include <algorithm>
#include <utility>

namespace tactus::fleet {
namespace {

using How = RouteRecorder::End::How;

const char* NameOf(How how) {
  switch (how) {
    case How::kCompleted:
      return "completed";
    case How::kRejected:
      return "rejected";
    case How::kCancelled:
      return "cancelled";
    case How::kFailed:
      break;
  }
  return "failed";
}

results::RunSeries::End SeriesEnd(How how) {
  return how == How::kCompleted  ? results::RunSeries::End::kCompleted
         : how == How::kRejected ? results::RunSeries::End::kRejected
                                 : results::RunSeries::End::kFailed;
}

}  // namespace

RouteRecorder::RouteRecorder(std::unique_ptr<results::RunFileWriter> file, TimeNs origin_ns)
    : file_(std::move(file)),
      origin_ns_(origin_ns),
      series_(file_->interval_ns(), [this](const results::RunInterval& interval) { file_->Add(interval); }) {}

RouteRecorder::Seen RouteRecorder::Arrived(TimeNs now_ns) {
  series_.Arrived(now_ns - origin_ns_);
  run_.Arrived(now_ns);
  Seen seen;
  seen.number = requests_++;
  seen.arrival_ns = now_ns;
  return seen;
}

// For events that arrive together: the first has the whole delay, the others none.
void RouteRecorder::Told(int64_t events, TimeNs now_ns, Seen* seen) {
  if (events <= 0) return;
  const bool first = seen->first_ns < 0;
  const DurationNs waited_ns = now_ns - (first ? seen->arrival_ns : seen->last_ns);
  const auto tell = [&](DurationNs gap_ns, bool is_first, int64_t count) {
    series_.Tokens(now_ns - origin_ns_, gap_ns, is_first, count);
    run_.Tokens(now_ns, gap_ns, is_first, count);
  };
  tell(waited_ns, first, 1);
  if (events > 1) tell(0, false, events - 1);
  if (first) {
    seen->first_ns = now_ns;
  } else {
    seen->longest_gap_ns = std::max(seen->longest_gap_ns, waited_ns);
  }
  seen->gaps += events - (first ? 1 : 0);
  seen->last_ns = now_ns;
}

void RouteRecorder::Ended(const Seen& seen, const End& end, std::string_view id, TimeNs now_ns) {
  results::RunRequest row;
  row.number = seen.number;
  row.id = id;
  row.replica = end.replica;
  row.arrival_ns = seen.arrival_ns - origin_ns_;
  if (seen.first_ns >= 0) row.first_token_ns = seen.first_ns - origin_ns_;
  row.done_ns = now_ns - origin_ns_;
  if (end.prompt_tokens > 0) row.prompt_tokens = end.prompt_tokens;
  if (end.output_tokens > 0) row.output_tokens = end.output_tokens;
  if (seen.gaps > 0) row.longest_gap_ns = seen.longest_gap_ns;
  row.finish = NameOf(end.how);
  file_->Add(row);
  series_.Ended(row.done_ns, SeriesEnd(end.how));
  if (end.how == How::kRejected) return run_.Rejected(seen.arrival_ns, {}, {});
  results::EndedRequest ended;
  ended.ok = end.how == How::kCompleted;
  ended.prompt_tokens = end.prompt_tokens;
  ended.completion_tokens = end.output_tokens;
  if (seen.first_ns >= 0) ended.ttft_ns = seen.first_ns - seen.arrival_ns;
  ended.arrival_ns = seen.arrival_ns;
  ended.done_ns = now_ns;
  ended.longest_gap_ns = seen.longest_gap_ns;
  ended.gaps = seen.gaps;
  run_.Ended(ended);
}

Status RouteRecorder::Close() {
  series_.Finish();
  return file_->Close(ToJson(run_.Outcome()));
}

}  // namespace tactus::fleet
