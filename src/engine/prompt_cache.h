// The prefix cache on disk (--kv-cache-dir; docs/concepts/prompt_cache.md): KV blocks that the cache computed are
// written to a folder, and a prompt's leading blocks that lie there are read back before it is computed.
//
// Neither direction blocks the step loop. The writer thread requests new blocks of the cache
// (TransferKind::kReadEntered), which the loop copies while a step runs, and writes them. The loop defers a request
// whose prompt blocks are in the folder; the reader thread reads them into host blocks that the loop has reserved
// (kReserve) and reports kFetched: from then on the request's KV lies in host memory, as after a swap
// (docs/concepts/swap.md). The timer thread bounds the wait: after 5 s, or after 100 ms without reserved room, the
// request runs without them, so that neither a hanging disk nor other requests' blocks delay it further.
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

// All outlive the cache, except the executor, which outlives Finish.
struct PromptCacheParts {
  core::StepLoop* loop = nullptr;
  Executor* executor = nullptr;
  Clock* clock = nullptr;
  const core::ReplicaConfig* replica = nullptr;  // its import_blocks limit the blocks in transit for one prompt
  std::string identity;                          // everything that K and V depend on, except sizes and keys; lines
};

class PromptCache {
 public:
  // Errors and lines for people as from BlockStore::Open.
  static Result<std::unique_ptr<PromptCache>> Open(std::unique_ptr<KvFolder> folder, int64_t max_bytes,
                                                   const PromptCacheParts& parts, const BlockStore::Say& say);
  // Precondition: the loop has ended.
  ~PromptCache();

  // Any thread. Calls StepLoop::Submit with the prompt blocks found in the folder noted in the request, and starts to
  // read them.
  Result<RequestHandle> Submit(core::PreparedRequest prepared);

  // Call once, after the loop has ended: writes the blocks that are not written yet, until a time limit.
  void Finish();

  std::string MetricsText(const results::Labels& labels) const;
  std::vector<std::string> TakeWarnings() { return store_->TakeWarnings(); }

 private:
  struct Job {
    RequestHandle handle = 0;
    std::vector<Hash128> keys;
    CacheEnd end = CacheEnd::kUnknown;  // after those keys
    core::ImportId reservation = 0;
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
  void Tell(RequestHandle handle, core::ImportId reservation, int32_t blocks, CacheEnd end);

  const std::unique_ptr<BlockStore> store_;
  const PromptCacheParts parts_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::deque<core::TransferAnswer> entered_;     // to be written; at most one, since the writer requests one at a time
  std::deque<std::shared_ptr<const Job>> jobs_;  // with host blocks reserved
  int64_t fetched_requests_ = 0;                 // with at least one block read
  TimeNs next_note_ns_ = 0;                      // of the writer thread
  struct Wait {
    RequestHandle handle = 0;
    bool for_room = false;  // otherwise for all blocks
  };
  std::multimap<TimeNs, Wait> waits_;  // by deadline, of requests that wait for blocks
  std::thread writer_, reader_, timer_;
};

}  // namespace tactus::engine
