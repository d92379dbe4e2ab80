// The prefix cache's longer memory (--kv-cache-dir; docs/prompt_cache.md): KV blocks that the cache computed are
// written to a folder, and a prompt whose leading blocks lie there has them read back before it is computed.
//
// Neither way makes the step loop wait. A thread asks it for what is new in the cache (TransferKind::kReadEntered),
// which the loop copies while a step runs, and writes that. A request whose prompt the folder knows is held by the
// loop; another thread reads its blocks into host blocks that the loop has reserved for it (kReserve), and says so
// (kFetched): from then on it is one whose KV lies in host memory, as after a swap (docs/swap.md). A third thread sees
// to it that neither a disk that hangs nor the blocks of others hold anybody: the request is told that nothing comes,
// after 5 s, or after 100 ms where it has no room by then.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "core/loop/replica.h"
#include "engine/kv_store/block_store.h"
#include "results/obs/prometheus_text.h"

namespace tactus::engine {

// All outlive it, but for the executor, which outlives Finish.
struct PromptCacheParts {
  core::StepLoop* loop = nullptr;
  Executor* executor = nullptr;
  Clock* clock = nullptr;
  const core::ReplicaConfig* replica = nullptr;  // its import_blocks are the most that one prompt may have on the way
  std::string identity;                          // what K and V depend on, but for sizes and keys; lines
};

class PromptCache {
 public:
  // Errors and lines for people as of BlockStore::Open.
  static Result<std::unique_ptr<PromptCache>> Open(std::unique_ptr<KvFolder> folder, int64_t max_bytes,
                                                   const PromptCacheParts& parts, const BlockStore::Say& say);
  // Precondition: the loop runs no more.
  ~PromptCache();

  // Any thread. StepLoop::Submit, with what the folder has of the prompt noted in the request, and on its way.
  Result<RequestHandle> Submit(core::PreparedRequest prepared);

  // Once, when the loop runs no more: writes what it has not been asked for yet, as far as there is time.
  void Finish();

  std::string MetricsText(const results::Labels& labels) const;
  std::vector<std::string> TakeWarnings() { return store_->TakeWarnings(); }

 private:
  struct Job {
    RequestHandle handle = 0;
    std::vector<Hash128> keys;
    CacheEnd end = CacheEnd::kUnknown;  // after those
    core::ImportId room = 0;
    std::vector<BlockId> host_blocks;
  };
  PromptCache(std::unique_ptr<BlockStore> store, const PromptCacheParts& parts);
  void Look(core::PreparedRequest* prepared);
  core::TransferCommand ReserveFor(const std::shared_ptr<Job>& job);
  void EndThreads();
  void Write();
  bool Store(const core::TransferAnswer& entered);
  void ReadJobs();
  void ReadOne(const Job& job, std::vector<std::byte>* block);
  void EndWaits();
  void Tell(RequestHandle handle, core::ImportId room, int32_t blocks, CacheEnd end);

  const std::unique_ptr<BlockStore> store_;
  const PromptCacheParts parts_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::deque<core::TransferAnswer> entered_;     // to be written; at most one, as it is asked for one by one
  std::deque<std::shared_ptr<const Job>> jobs_;  // have their room
  int64_t fetched_requests_ = 0;                 // that had blocks read, also where not all could be
  TimeNs next_note_ns_ = 0;                      // the writer's
  struct Wait {
    RequestHandle handle = 0;
    bool for_room = false;  // else for all
  };
  std::multimap<TimeNs, Wait> waits_;  // by their end, of requests that blocks were asked for
  std::thread writer_, reader_, timer_;
};

}  // namespace tactus::engine
