#include "offline/job/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "base/json.h"
#include "base/thread_role.h"
#include "offline/job/line_request.h"
#include "offline/job/line_run.h"

namespace tactus::offline {
namespace {

constexpr std::chrono::milliseconds kTick{200};  // the longest that results wait to be written
constexpr size_t kGroupLines = 64;
constexpr size_t kGroupBytes = size_t{1} << 20;
constexpr size_t kMostUnwrittenBytes = size_t{64} << 20;  // above this no further line is read
// How often WaitToRead reads most_waiting again, whose limit is lifted when the sample has ended.
constexpr DurationNs kLookNs = 50 * kMillisecond;

Status OutOfMemory() {
  return Status(StatusCode::kResourceExhausted,
                "out of memory: lower --max-queue or --kv-cache-memory, or allow this process more");
}

class Runner {
 public:
  Runner(Job* job, Engine* engine, const RunnerOptions& options, Clock& clock)
      : job_(*job),
        engine_(*engine),
        options_(options),
        clock_(clock),
        fingerprint_(api::Fingerprint(engine->model())),
        order_(job, engine, options.limits, options.url, options.order, &clock) {}

  Status Run();

 private:
  // --- The reading thread ---
  void Read();
  Status ReadLines();
  Status Begin(const LineStart& start);
  void TellOrder();
  bool WaitToRead();  // false: no further line starts

  // --- Any thread ---
  // `begun`: the line's key in live_; 0: it never started.
  void Finished(int64_t begun, const ResultNames& names, const Result<LineAnswer>& answer, bool asked);
  static LineResult ResultOf(const ResultNames& names, const Result<LineAnswer>& answer, bool asked);
  void Keep(LineResult result);
  void CountIgnored(const ResultNames& names);
  void Stop(Status why, bool drop_begun);

  // --- The thread of Run ---
  bool TakeGroup(std::vector<LineResult>* group);  // false: that was the last one
  bool Report(TimeNs start_ns);

  Job& job_;
  Engine& engine_;
  const RunnerOptions& options_;
  Clock& clock_;
  const std::string fingerprint_;

  LineOrder order_;  // used by the reading thread, and by Run after that thread has ended
  int64_t begun_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, std::shared_ptr<LineRun>> live_;  // in the order in which they started, from 1
  std::vector<LineResult> finished_;
  IgnoredFields ignored_;
  size_t finished_bytes_ = 0;
  std::vector<std::pair<int64_t, int64_t>> ended_;  // lines and their answers' tokens that order_ has not received yet
  double work_share_ = 0, bound_s_ = 0;
  bool read_ = false;  // no further line will start
  std::atomic<bool> planning_{false};
  std::atomic<int64_t> lines_planned_{0};
  Status stopped_;  // why no further line starts
};

Status Runner::Run() {
  const TimeNs start_ns = clock_.NowNs();
  std::thread reader([this] { Read(); });
  std::vector<LineResult> group;
  Status failed;  // a failed write; takes precedence over other reasons
  for (bool more = true; more;) {
    group.clear();
    more = TakeGroup(&group);
    bool go_on = true;
    Status written;
    try {
      if (!group.empty()) written = job_.Commit(group);
      go_on = Report(start_ns);
    } catch (const std::bad_alloc&) {  // uncommitted lines run again
      written = OutOfMemory();
    }
    if (!written.ok()) {
      failed = written;
      Stop(written, true);
    }
    if (!go_on) Stop(Status(StatusCode::kCancelled, "interrupted"), false);
    if (!engine_.Stats().healthy) {
      const Status failure = engine_.Failure();
      Stop(failure.ok() ? Status(StatusCode::kUnavailable, "the engine failed three steps in a row") : failure, true);
    }
  }
  reader.join();
  TellOrder();
  if (const auto plan = order_.Report(); plan && options_.plan != nullptr) *options_.plan = *plan;
  if (options_.ignored != nullptr) *options_.ignored = ignored_;  // no line runs any more
  if (!failed.ok()) return failed;
  return job_.counts().left() == 0 ? Status() : stopped_;
}

bool Runner::TakeGroup(std::vector<LineResult>* group) {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return read_ && live_.empty(); };
  changed_.wait_for(lock, kTick,
                    [&] { return over() || finished_.size() >= kGroupLines || finished_bytes_ >= kGroupBytes; });
  group->swap(finished_);
  finished_bytes_ = 0;
  changed_.notify_all();
  return !over();
}

bool Runner::Report(TimeNs start_ns) {
  if (!options_.progress) return true;
  RunProgress progress;
  progress.counts = job_.counts();
  progress.elapsed_ns = clock_.NowNs() - start_ns;
  progress.lines_planned = lines_planned_.load(std::memory_order_relaxed);
  progress.planning = planning_.load(std::memory_order_relaxed);
  {
    std::lock_guard lock(mutex_);
    progress.work_share = work_share_;
    progress.bound_s = bound_s_;
    progress.in_engine = static_cast<int64_t>(live_.size());
    progress.generating = std::count_if(live_.begin(), live_.end(), [](const auto& l) { return l.second->begun(); });
  }
  return options_.progress(progress);
}

void Runner::Stop(Status why, bool drop_begun) {
  {
    std::lock_guard lock(mutex_);
    if (stopped_.ok()) stopped_ = std::move(why);
    changed_.notify_all();
  }
  // The newest line first, since it waits for the room that others free. One at a time, since memory may be exhausted.
  for (int64_t before = std::numeric_limits<int64_t>::max();;) {
    std::shared_ptr<LineRun> line;
    {
      std::lock_guard lock(mutex_);
      auto next = live_.lower_bound(before);
      if (next == live_.begin()) return;
      --next;
      before = next->first;
      line = next->second;
    }
    line->Drop(!drop_begun);
  }
}

void Runner::Read() {
  SetThreadRole(ThreadRole::kService, "tactus-batch");
  Status status;
  try {
    status = ReadLines();
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
  }
  if (!status.ok()) Stop(status, true);
  std::lock_guard lock(mutex_);
  read_ = true;
  changed_.notify_all();
}

Status Runner::ReadLines() {
  planning_.store(true, std::memory_order_relaxed);
  TACTUS_RETURN_IF_ERROR(order_.Plan([this](int64_t lines) {
    lines_planned_.store(lines, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    return stopped_.ok();
  }));
  planning_.store(false, std::memory_order_relaxed);
  while (WaitToRead()) {
    TACTUS_ASSIGN_OR_RETURN(const std::optional<LineStart> start, order_.Next());
    if (!start) return Status();
    TACTUS_RETURN_IF_ERROR(Begin(*start));
  }
  return Status();
}

bool Runner::WaitToRead() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !stopped_.ok() || finished_bytes_ < kMostUnwrittenBytes; });
      if (!stopped_.ok()) return false;
    }
    TellOrder();
    const int32_t most = order_.most_waiting();
    if (most == 0) return true;
    // Waiting lines follow the present plan, so only as many wait as keep the engine busy.
    const int64_t room = options_.max_queue > 0 ? options_.max_queue - most : 1;
    const Status status = engine_.WaitForRoom(static_cast<int32_t>(std::max<int64_t>(1, room)), kLookNs);
    if (status.code() != StatusCode::kDeadlineExceeded) return true;  // the submission of the line reports other errors
  }
}

void Runner::TellOrder() {
  std::vector<std::pair<int64_t, int64_t>> ended;
  {
    std::lock_guard lock(mutex_);
    ended.swap(ended_);
  }
  for (const auto& [line, tokens] : ended) order_.OnDone(line, tokens);
  std::lock_guard lock(mutex_);
  work_share_ = order_.done_share();
  bound_s_ = order_.bound_s();
}

Status Runner::Begin(const LineStart& start) {
  TACTUS_ASSIGN_OR_RETURN(LineRequest request,
                          ReadLineRequest(job_, start.line, &engine_, options_.limits, ReadFor::kRun, options_.url));
  const ResultNames& names = request.names;
  if (!request.status.ok()) {
    Finished(0, names, request.status, request.asked);
    return Status();
  }
  for (Request& prompt : request.prepared.requests) prompt.planned = start.place;
  auto run = std::make_shared<LineRun>(
      &engine_, *request.api, std::move(request.prepared),
      api::AnswerIdentity{names.request_id(), UnixSeconds(), fingerprint_},
      [this, names, begun = ++begun_](const Result<LineAnswer>& answer) { Finished(begun, names, answer, true); });
  {
    std::lock_guard lock(mutex_);
    if (!stopped_.ok()) return Status();
    live_[begun_] = run;
  }
  run->Submit();
  return Status();
}

void Runner::Finished(int64_t begun, const ResultNames& names, const Result<LineAnswer>& answer, bool asked) {
  const StatusCode code = answer.status().code();
  // No answer, and no fault of the line: it waits for the next run.
  const bool waits = code == StatusCode::kCancelled || code == StatusCode::kUnavailable;
  Status stop = waits ? answer.status() : Status();
  try {
    if (!waits) Keep(ResultOf(names, answer, asked));
    if (answer.ok() && !names.ignored.empty()) CountIgnored(names);
  } catch (const std::bad_alloc&) {
    stop = OutOfMemory();  // the line also waits for the next run
  }
  std::shared_ptr<LineRun> ended;  // destroyed without the mutex
  std::lock_guard lock(mutex_);
  if (const auto found = live_.find(begun); found != live_.end()) {
    ended = std::move(found->second);
    live_.erase(found);
  }
  if (!stop.ok() && stopped_.ok()) stopped_ = stop;
  if (!stop.ok() || finished_.size() >= kGroupLines || finished_bytes_ >= kGroupBytes || (read_ && live_.empty()))
    changed_.notify_all();
}

LineResult Runner::ResultOf(const ResultNames& names, const Result<LineAnswer>& answer, bool asked) {
  LineResult result;
  result.line = names.line;
  result.ok = answer.ok();
  if (answer.ok()) {
    result.text = AnswerText(names, answer->body);
    result.prompt_tokens = answer->usage.prompt_tokens;
    result.output_tokens = answer->usage.completion_tokens;
  } else {
    result.text = FailureText(names, answer.status(), asked);
  }
  return result;
}

void Runner::CountIgnored(const ResultNames& names) {
  std::lock_guard lock(mutex_);
  if (ignored_.lines++ > 0 && names.line > ignored_.first_line) return;
  ignored_.first_line = names.line;
  ignored_.first = names.ignored;
}

void Runner::Keep(LineResult result) {
  std::lock_guard lock(mutex_);
  if (order_.planned()) ended_.emplace_back(result.line, result.output_tokens);
  const size_t bytes = result.text.size();
  finished_.push_back(std::move(result));
  finished_bytes_ += bytes;
}

}  // namespace

Status RunJob(Job* job, Engine* engine, const RunnerOptions& options, Clock& clock) {
  return Runner(job, engine, options, clock).Run();
}

}  // namespace tactus::offline
