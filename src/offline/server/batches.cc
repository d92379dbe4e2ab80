#include "offline/server/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "base/thread_role.h"
#include "offline/job/answer_settings.h"
#include "offline/job/end_job.h"
#include "offline/job/runner.h"
#include "offline/server/objects.h"

namespace tactus::offline {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kLook{1};  // interval at which time limits are checked
constexpr int64_t kSweep_s = 10;
// Pause after a failed attempt (full disk, another model): doubled each time, because an attempt may read a long input.
constexpr int64_t kRetry_s = 10, kLongestRetry_s = 600;
constexpr int kMostTries = 10;      // to end a batch that cannot be read
constexpr int64_t kMostEnding = 2;  // batches that only end unrun lines, beside those that run

constexpr std::pair<const char*, const char*> kWhyUnrun[] = {
    {"batch_cancelled", "the batch was cancelled before the line was done"},
    {"batch_expired", "the line was not done when the completion window had passed"}};

}  // namespace

struct Batches::Open {
  Open(BatchRow row_in, int64_t number_in) : asked(row_in), number(number_in), row(std::move(row_in)) {}

  const BatchRow asked;  // only fields that never change are used: ids, owner, endpoint
  const int64_t number;  // in order of arrival
  // Used only by the batch's own thread:
  bool in_file_order = false;  // too large for a plan
  // With mutex_ held:
  BatchRow row;
  bool running = false, done = false;
  bool to_end = false;  // its thread only ends the batch
  bool cancelled = false, closing = false;
  int64_t next_try_s = 0;
  int tries = 0;                  // consecutive failures
  BatchEngine* engine = nullptr;  // of its lines, while they run
  std::thread thread;
};

Batches::Batches(Store* store, Files* files, BatchLimits limits, UnixClock unix_clock, Log log)
    : store_(*store), files_(*files), limits_(limits), unix_clock_(std::move(unix_clock)), log_(std::move(log)) {}

Batches::~Batches() {
  stopping_.store(true);
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    for (const auto& [id, batch] : open_) {
      if (batch->engine != nullptr) batch->engine->End();
    }
    changed_.notify_all();
  }
  if (chooser_.joinable()) chooser_.join();
  Join(true);
}

Status Batches::Start(BatchService service) {
  TACTUS_ASSIGN_OR_RETURN(std::vector<BatchRow> rows, store_.OpenBatches());
  service_ = std::move(service);
  room_.emplace(service_.share, *service_.clock, [engine = service_.engine] {
    const EngineStats stats = engine->Stats();
    return stats.running + stats.waiting;
  });
  std::lock_guard lock(mutex_);
  for (BatchRow& row : rows) {
    auto batch = std::make_unique<Open>(std::move(row), next_number_++);
    batch->cancelled = batch->row.state == BatchState::kCancelling;
    const std::string id = batch->asked.id;
    open_.emplace(id, std::move(batch));
  }
  if (!open_.empty()) log_(fmt::format("{} batches are resumed", open_.size()));
  CountStates();
  chooser_ = std::thread([this] { Choose(); });
  return Status();
}

void Batches::StopBeginning() {
  stopping_.store(true);
  if (room_) room_->Close();
}

// --- Client requests ---

Result<BatchRow> Batches::Create(const std::string& owner, std::string_view body) {
  TACTUS_ASSIGN_OR_RETURN(BatchRow row, ParseBatch(body, unix_clock_()));
  TACTUS_ASSIGN_OR_RETURN(row.id, NewId("batch_"));
  TACTUS_ASSIGN_OR_RETURN(row.output_file_id, NewId("file-"));
  TACTUS_ASSIGN_OR_RETURN(row.error_file_id, NewId("file-"));
  row.owner = owner;
  TACTUS_RETURN_IF_ERROR(files_.CheckRoomForResults(owner));
  std::lock_guard lock(mutex_);
  const auto open = std::count_if(open_.begin(), open_.end(),
                                  [&](const auto& b) { return b.second->row.owner == owner && !b.second->done; });
  if (open >= limits_.open_per_owner) {
    return Status(StatusCode::kTooManyRequests,
                  fmt::format("{} batches of this client have not ended, the limit; try again when some have", open));
  }
  TACTUS_RETURN_IF_ERROR(store_.AddBatch(row));
  open_.emplace(row.id, std::make_unique<Open>(row, next_number_++));
  CountStates();
  changed_.notify_all();
  return row;
}

Result<BatchRow> Batches::Find(const std::string& owner, const std::string& id) {
  {
    std::lock_guard lock(mutex_);
    const auto found = open_.find(id);
    if (found != open_.end() && found->second->row.owner == owner) return found->second->row;
  }
  TACTUS_ASSIGN_OR_RETURN(std::optional<BatchRow> row, store_.FindBatch(owner, id));
  if (!row) return NotFound(fmt::format("there is no batch '{}'", Printable(id)), "batch_id");
  return std::move(*row);
}

Result<Listed<BatchRow>> Batches::List(const std::string& owner, const Page& page) {
  TACTUS_ASSIGN_OR_RETURN(Listed<BatchRow> listed, store_.ListBatches(owner, page));
  std::lock_guard lock(mutex_);
  for (BatchRow& row : listed.rows) {
    if (const auto found = open_.find(row.id); found != open_.end()) row = found->second->row;
  }
  return listed;
}

Result<BatchRow> Batches::Cancel(const std::string& owner, const std::string& id) {
  TACTUS_ASSIGN_OR_RETURN(const BatchRow row, Find(owner, id));
  std::lock_guard lock(mutex_);
  const auto found = open_.find(id);
  Open* batch = found == open_.end() ? nullptr : found->second.get();
  if (batch != nullptr && batch->cancelled && !batch->done) return batch->row;
  if (batch == nullptr || batch->closing || batch->done) {
    const BatchState state = batch != nullptr ? batch->row.state : row.state;
    return InvalidArgument(
        fmt::format("batch '{}' cannot be cancelled: it is {}", row.id, kBatchStateNames[static_cast<size_t>(state)]),
        "batch_id");
  }
  TACTUS_RETURN_IF_ERROR(Enter(batch, BatchState::kCancelling));
  batch->cancelled = true;
  batch->next_try_s = std::min(batch->next_try_s, unix_clock_() + kRetry_s);
  if (batch->engine != nullptr) batch->engine->End();
  changed_.notify_all();
  return batch->row;
}

Batches::Metrics Batches::metrics() const {
  std::lock_guard lock(metrics_mutex_);
  return metrics_;
}

// --- State ---

// If the store fails, the batch's state is unchanged.
Status Batches::Enter(Open* batch, BatchState state) {
  BatchRow row = batch->row;
  row.state = state;
  row.entered_s[static_cast<size_t>(state)] = unix_clock_();
  TACTUS_RETURN_IF_ERROR(store_.UpdateBatch(row));
  batch->row = std::move(row);
  CountStates();
  return Status();
}

void Batches::CountStates() {
  const auto counts = store_.CountByState();
  if (!counts.ok()) return;
  const int64_t running = std::count_if(open_.begin(), open_.end(), [](const auto& b) { return b.second->running; });
  std::lock_guard lock(metrics_mutex_);
  std::copy_n(counts->begin(), kBatchStates, metrics_.by_state.begin());
  metrics_.running = running;
}

bool Batches::MustEnd(const Open& batch) const {
  return batch.cancelled || unix_clock_() >= batch.row.expires_s;
}

// Time of the next attempt after a failure.
int64_t Batches::NextTry(const Open& batch, int64_t now_s) const {
  // Ending a batch needs no model, and is given up after some attempts.
  if (batch.to_end && batch.tries < kMostTries) return now_s + kRetry_s;
  int64_t pause_s = kRetry_s;
  for (int i = 1; i < batch.tries && pause_s < kLongestRetry_s; ++i) pause_s *= 2;
  const int64_t next_s = now_s + std::min(pause_s, kLongestRetry_s);
  return batch.to_end ? next_s : std::min(next_s, std::max(now_s + kRetry_s, batch.row.expires_s));
}

// --- The choosing thread ---

// With the mutex held.
void Batches::StartOrEnd(Open* batch, int64_t now_s) {
  const bool to_end = MustEnd(*batch);
  if (to_end != batch->to_end) batch->tries = 0;
  batch->to_end = to_end;
  try {
    batch->thread = std::thread([this, batch] { Run(batch); });
    batch->running = true;
  } catch (const std::system_error&) {  // no thread at the moment
    batch->next_try_s = now_s + kRetry_s;
  }
}

void Batches::Choose() {
  SetThreadRole(ThreadRole::kService, "tactus-batches");
  int64_t next_sweep_s = 0;
  std::unique_lock lock(mutex_);
  while (!ending_) {
    try {
      const int64_t now_s = unix_clock_();
      while (Open* batch = Next(now_s)) StartOrEnd(batch, now_s);
      CountStates();
      lock.unlock();
      Join(false);
      if (now_s >= next_sweep_s) {
        next_sweep_s = now_s + kSweep_s;
        files_.DeleteExpired();
      }
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): out of memory; tried again at the next check
    }
    if (!lock.owns_lock()) lock.lock();
    if (!ending_) changed_.wait_for(lock, kLook);
  }
}

// First a batch that only has to be ended; otherwise the oldest batch of the client with the fewest running. None after
// the stop signal: ending may take longer than a server has to stop, and is done at the next start.
Batches::Open* Batches::Next(int64_t now_s) {
  if (stopping_.load()) return nullptr;
  std::map<std::string, int64_t> running_of;
  int64_t running = 0, ending = 0;
  for (const auto& [id, b] : open_) {
    if (!b->running) continue;
    ++(b->to_end ? ending : running);
    ++running_of[b->row.owner];
  }
  const auto rank = [&](const Open& b) { return std::pair(running_of[b.row.owner], b.number); };
  Open *to_end = nullptr, *to_run = nullptr;
  for (const auto& [id, b] : open_) {
    if (b->running || b->done || b->thread.joinable()) continue;
    if (MustEnd(*b)) {
      if (now_s >= b->next_try_s && (to_end == nullptr || b->number < to_end->number)) to_end = b.get();
    } else if (now_s >= b->next_try_s && (to_run == nullptr || rank(*b) < rank(*to_run))) {
      to_run = b.get();
    }
  }
  if (to_end != nullptr && ending < kMostEnding) return to_end;
  return running < limits_.running ? to_run : nullptr;
}

// Joins the threads that have ended, or all.
void Batches::Join(bool all) {
  std::vector<std::thread> threads;
  {
    std::lock_guard lock(mutex_);
    for (auto at = open_.begin(); at != open_.end();) {
      Open& b = *at->second;
      if (b.thread.joinable() && (all || !b.running)) threads.push_back(std::move(b.thread));
      at = b.done && !b.running ? open_.erase(at) : std::next(at);
    }
  }
  for (std::thread& thread : threads) thread.join();
}

// --- The thread of a batch ---

void Batches::Run(Open* batch) {
  SetThreadRole(ThreadRole::kService, "tactus-batch");
  Status status;
  try {
    status = RunOnce(batch);
  } catch (const std::exception& e) {
    status = Internal(e.what());
  }
  if (!status.ok() && !stopping_.load()) log_(fmt::format("batch {} waits: {}", batch->asked.id, status.message()));
  std::lock_guard lock(mutex_);
  batch->running = false;
  batch->tries = status.ok() ? 0 : batch->tries + 1;
  batch->next_try_s = status.ok() ? 0 : NextTry(*batch, unix_clock_());
  changed_.notify_all();
}

// Ok: the batch has ended, or is checked again later.
Status Batches::RunOnce(Open* batch) {
  bool to_end = false;
  {
    std::lock_guard lock(mutex_);
    to_end = MustEnd(*batch);
  }
  auto opened = OpenJob(*batch, to_end);
  if (!opened.ok()) return NotOpened(batch, to_end, opened.status());
  const std::unique_ptr<Job> job = std::move(*opened);
  {
    std::lock_guard lock(mutex_);
    batch->row.counts = job->counts();  // includes earlier runs
  }
  if (!to_end && job->counts().left() > 0) {
    const Status ran = RunLines(batch, job.get());
    std::lock_guard lock(mutex_);
    if (!ran.ok() && !MustEnd(*batch)) return ran;
  }
  BatchState how = BatchState::kCompleted;
  {
    std::lock_guard lock(mutex_);
    const bool left = job->counts().left() > 0;
    if (batch->cancelled)
      how = BatchState::kCancelled;
    else if (left)
      how = BatchState::kExpired;
    if (!batch->cancelled) TACTUS_RETURN_IF_ERROR(Enter(batch, BatchState::kFinalizing));
    batch->closing = true;
  }
  return EndLines(batch, job.get(), how);
}

// Decides by the error whether the batch fails, or is tried again later.
Status Batches::NotOpened(Open* batch, bool to_end, const Status& why) {
  bool begun = false, tried = false;
  {
    std::lock_guard lock(mutex_);
    begun = batch->row.entered_s[static_cast<size_t>(BatchState::kInProgress)] > 0;
    tried = batch->tries >= kMostTries;
  }
  if (why.code() == StatusCode::kCancelled) return why;
  if (why.code() == StatusCode::kNotFound || (to_end && tried)) {
    return Fail(batch,
                {"input_lost", "the input file or the state of the batch is missing or damaged", "input_file_id", 0});
  }
  if (why.code() != StatusCode::kInvalidArgument || begun) return why;
  if (why.param() == "lines") return Fail(batch, {"too_many_lines", why.message(), "input_file_id", 0});
  if (why.param() == "gzip") {
    return Fail(batch, {"invalid_file",
                        fmt::format("the input file is gzipped, and is damaged or has more than {} bytes unpacked "
                                    "(--max-file-size); upload it again, or divide it",
                                    limits_.input_bytes),
                        "input_file_id", 0});
  }
  if (why.param() != "input") return why;
  return Fail(batch, {"empty_file", "the input file has no lines; add at least one request", "input_file_id", 0});
}

Result<std::unique_ptr<Job>> Batches::OpenJob(const Open& batch, bool to_end) {
  const BatchRow& row = batch.asked;
  JobOptions options;
  options.most_lines = limits_.lines;
  options.most_line_bytes = limits_.line_bytes;
  options.most_bytes = limits_.input_bytes;
  options.seed = service_.seed;
  // Ending a batch depends on no settings.
  if (!to_end) options.settings = service_.settings;
  options.progress = [this](int64_t) { return !stopping_.load(); };
  return Job::Open(FilesOf(row), options);
}

JobFiles Batches::FilesOf(const BatchRow& row) const {
  return {store_.FilePath(row.input_file_id), store_.FilePath(row.output_file_id), store_.FilePath(row.error_file_id),
          store_.JobPath(row.id)};
}

// Copies the job's progress; false: the batch must stop.
bool Batches::SeeProgress(Open* batch, const JobCounts& counts) {
  std::lock_guard lock(mutex_);
  {
    std::lock_guard metrics(metrics_mutex_);
    metrics_.lines_out += std::max<int64_t>(0, counts.out - batch->row.counts.out);
    metrics_.lines_failed += std::max<int64_t>(0, counts.errors - batch->row.counts.errors);
  }
  batch->row.counts = counts;
  if (!MustEnd(*batch)) return !stopping_.load();
  if (batch->engine != nullptr) batch->engine->End();
  return false;
}

Status Batches::RunLines(Open* batch, Job* job) {
  BatchEngine engine(service_.engine, &*room_, service_.client(batch->asked.owner));
  {
    std::lock_guard lock(mutex_);
    if (ending_) return Status(StatusCode::kCancelled, "the server is stopping");
    if (MustEnd(*batch)) return Status();
    if (batch->row.state == BatchState::kValidating) TACTUS_RETURN_IF_ERROR(Enter(batch, BatchState::kInProgress));
    batch->engine = &engine;
  }
  RunnerOptions options;
  options.limits = service_.limits;
  options.url = batch->asked.endpoint;
  // kDfs shares the most. On processors nothing overlaps, and interactive requests rule out waiting for a sample.
  options.order.order = batch->in_file_order ? PlanOrder::kFcfs : PlanOrder::kDfs;
  options.order.memory_bytes = limits_.planner_bytes;
  options.order.kv_tokens = service_.share.kv_tokens;
  options.progress = [this, batch](const RunProgress& p) { return SeeProgress(batch, p.counts); };
  Status status = RunJob(job, &engine, options, *service_.clock);
  if (status.code() == StatusCode::kTooLarge && !batch->in_file_order) {
    // No line has started. A plan only shares prefixes; no answer depends on it.
    log_(fmt::format("batch {} runs in the order of its file: {}", batch->asked.id, status.message()));
    batch->in_file_order = true;
    options.order.order = PlanOrder::kFcfs;
    status = RunJob(job, &engine, options, *service_.clock);
  }
  SeeProgress(batch, job->counts());
  std::lock_guard lock(mutex_);
  batch->engine = nullptr;
  return status;
}

Status Batches::EndLines(Open* batch, Job* job, BatchState how) {
  const auto& [code, message] = kWhyUnrun[how == BatchState::kExpired ? 1 : 0];
  TACTUS_RETURN_IF_ERROR(EndWaiting(job, code, message, [this] { return !stopping_.load(); }));
  SeeProgress(batch, job->counts());
  TACTUS_ASSIGN_OR_RETURN(const JobTokens tokens, job->tokens());
  return Finish(batch, how, tokens);
}

// The batch's results, including those of earlier runs, are kept.
Status Batches::Fail(Open* batch, BatchError why) {
  TACTUS_ASSIGN_OR_RETURN(LeftResults left,
                          KeepResults(FilesOf(batch->asked), [this](int64_t) { return !stopping_.load(); }));
  BatchState how = BatchState::kFailed;
  {
    std::lock_guard lock(mutex_);
    batch->closing = true;
    left.counts.lines = std::max(left.counts.lines, batch->row.counts.lines);
    batch->row.counts = left.counts;
    batch->row.errors = {std::move(why)};
    if (batch->cancelled) how = BatchState::kCancelled;
  }
  return Finish(batch, how, left.tokens);
}

Status Batches::Finish(Open* batch, BatchState how, const JobTokens& tokens) {
  std::lock_guard lock(mutex_);
  BatchRow row = batch->row;
  row.state = how;
  row.entered_s[static_cast<size_t>(how)] = unix_clock_();
  row.has_output = row.counts.out > 0;
  row.has_errors = row.counts.errors > 0;
  row.input_tokens = tokens.prompt;
  row.output_tokens = tokens.output;
  std::vector<FileRow> files;
  for (const bool output : {true, false}) {
    if (!(output ? row.has_output : row.has_errors)) continue;
    FileRow file;
    file.id = output ? row.output_file_id : row.error_file_id;
    file.owner = row.owner;
    file.name = fmt::format("{}_{}.jsonl", row.id, output ? "output" : "error");
    file.purpose = kOutputPurpose;
    std::error_code lost;
    const auto bytes = fs::file_size(store_.FilePath(file.id), lost);
    file.bytes = lost ? 0 : static_cast<int64_t>(bytes);
    file.created_s = unix_clock_();
    if (row.results_live_s > 0) file.expires_s = file.created_s + row.results_live_s;
    files.push_back(std::move(file));
  }
  TACTUS_RETURN_IF_ERROR(store_.EndBatch(row, files));
  batch->row = std::move(row);
  batch->done = true;
  for (const FileRow& file : files) files_.Count(file);
  // The remaining job files are not used any more; files that cannot be removed now are removed at the next start.
  std::error_code error;
  if (!batch->row.has_output) fs::remove(store_.FilePath(batch->row.output_file_id), error);
  if (!batch->row.has_errors) fs::remove(store_.FilePath(batch->row.error_file_id), error);
  for (const char* end : {"", "-journal"}) fs::remove(store_.JobPath(batch->row.id) + end, error);
  CountStates();
  return Status();
}

}  // namespace tactus::offline
