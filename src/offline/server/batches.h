// The batches of a server: accepted, run on its engine a few at a time, and ended in time. A batch is a job
// (offline/job/job.h) whose results lie in the store, so finished answers are kept in every case, and a batch that a
// server did not finish is resumed when the next server starts.
//
// Thread rule: any thread; calls may wait for the disk, except metrics() and StopBeginning. One thread chooses which
// batch runs next; each running batch has its own thread. Lock order: mutex_, then the store's. Invariants: for batches
// that have not ended, the row in memory is authoritative, and the store's row is updated at each change of state. A
// batch that has ended has one result for each line, or has failed; results that it had by then are kept.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "api/chat/parsed_request.h"
#include "base/clock.h"
#include "offline/job/job.h"
#include "offline/server/background.h"
#include "offline/server/batch_engine.h"
#include "offline/server/files.h"
#include "offline/server/rows.h"
#include "offline/server/store.h"
#include "tactus/engine.h"

namespace tactus::offline {

struct BatchLimits {
  int64_t running = 4;           // at the same time; the others wait for their turn
  int64_t open_per_owner = 100;  // not ended
  int64_t lines = 1'000'000;     // of one batch
  int64_t line_bytes = int64_t{4} << 20;
  int64_t input_bytes = int64_t{512} << 20;   // of the unpacked content of a gzipped input
  int64_t planner_bytes = int64_t{64} << 20;  // of each running batch; one that needs more runs in its file's order
};

// The parts that run batches.
struct BatchService {
  Engine* engine = nullptr;  // outlives all runs
  api::RequestLimits limits;
  JobSettings settings;  // what answers depend on: a batch is resumed only with equal settings
  uint64_t seed = 0;
  BackgroundShare share;
  std::function<BatchClient(const std::string& owner)> client;
  Clock* clock = nullptr;
};

class Batches {
 public:
  using Log = std::function<void(std::string_view line)>;
  // All outlive this. `unix_clock`: for times that are stored.
  Batches(Store* store, Files* files, BatchLimits limits, UnixClock unix_clock, Log log);
  ~Batches();  // ends running batches; the next server resumes them

  // Resumes the stored batches, and accepts new ones. Call once.
  Status Start(BatchService service);
  // No further line starts and no batch is ended; lines that generate run to their end. Returns at once.
  void StopBeginning();

  // `body`: of POST /v1/batches. kNotFound, kInvalidArgument: with the field; kTooManyRequests: too many have not
  // ended.
  Result<BatchRow> Create(const std::string& owner, std::string_view body);
  Result<BatchRow> Find(const std::string& owner, const std::string& id);
  Result<Listed<BatchRow>> List(const std::string& owner, const Page& page);
  // kInvalidArgument: the batch has ended, or is about to.
  Result<BatchRow> Cancel(const std::string& owner, const std::string& id);

  struct Metrics {
    std::array<int64_t, kBatchStates> by_state{};
    int64_t running = 0;
    int64_t lines_out = 0, lines_failed = 0;  // since the start
  };
  Metrics metrics() const;

 private:
  struct Open;

  void StartOrEnd(Open* batch, int64_t now_s);
  void Choose();  // the choosing thread
  Open* Next(int64_t now_s);
  void Join(bool all);
  void Run(Open* batch);  // the thread of a batch
  Status RunOnce(Open* batch);
  Status NotOpened(Open* batch, bool to_end, const Status& why);
  Result<std::unique_ptr<Job>> OpenJob(const Open& batch, bool to_end);
  JobFiles FilesOf(const BatchRow& row) const;
  Status RunLines(Open* batch, Job* job);
  Status EndLines(Open* batch, Job* job, BatchState how);
  Status Finish(Open* batch, BatchState how, const JobTokens& tokens);
  Status Fail(Open* batch, BatchError why);
  bool SeeProgress(Open* batch, const JobCounts& counts);

  // With mutex_ held.
  Status Enter(Open* batch, BatchState state);
  bool MustEnd(const Open& batch) const;
  int64_t NextTry(const Open& batch, int64_t now_s) const;
  void CountStates();

  Store& store_;
  Files& files_;
  const BatchLimits limits_;
  const UnixClock unix_clock_;
  const Log log_;
  BatchService service_;  // set by Start
  std::optional<BackgroundRoom> room_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::unique_ptr<Open>> open_;  // by id
  int64_t next_number_ = 0;
  std::atomic<bool> stopping_{false};  // no further line starts
  bool ending_ = false;
  std::thread chooser_;

  mutable std::mutex metrics_mutex_;  // never held during disk access
  Metrics metrics_;
};

}  // namespace tactus::offline
