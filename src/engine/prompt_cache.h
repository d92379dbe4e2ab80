// The prefix cache's longer memory (--kv-cache-dir; docs/prompt_cache.md): KV blocks that the cache computed are
// written to a folder, and a prompt whose leading blocks lie there has them read back before it is computed.
//
// Neither way makes the step loop wait. A thread asks it for what is new in the cache (TransferKind::kReadEntered),
// which the loop copies while a step runs, and writes that. A request whose prompt the folder knows is held by the
// loop; another thread reads its blocks into host blocks that the loop has reserved for it (kReserve), and says so
// (kFetched): from then on it is one whose KV lies in host memory, as after a swap (docs/swap.md).
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
#include "kv_store/block_store.h"
#include "loop/step_loop.h"
#include "obs/prometheus_text.h"

namespace tactus {

// All outlive it, but for the executor, which outlives Finish.
struct PromptCacheParts {
  StepLoop* loop = nullptr;
  Executor* executor = nullptr;
  Clock* clock = nullptr;
  int32_t block_size = 0;   // tokens
  int64_t room_blocks = 0;  // host blocks that one prompt may have on the way; >= 1
};

class PromptCache {
 public:
  PromptCache(std::unique_ptr<BlockStore> store, const PromptCacheParts& parts);
  // Precondition: the loop runs no more.
  ~PromptCache();

  // --- Any thread: around StepLoop::Submit ---
  // Notes in the request what the folder has of its prompt.
  void Look(PreparedRequest* prepared);
  // Gets it, where there is any, for the request that was submitted under this handle with these keys.
  void Fetch(RequestHandle handle, std::vector<Hash128> stored_keys);

  // Once, when the loop runs no more: writes what it has not been asked for yet, as far as there is time.
  void Finish();

  std::string MetricsText(const Labels& labels) const;
  std::vector<std::string> TakeWarnings() { return store_->TakeWarnings(); }

 private:
  struct Job {
    RequestHandle handle = 0;
    std::vector<Hash128> keys;
    ImportId room = 0;
    std::vector<BlockId> host_blocks;
  };
  void Write();
  bool Store(const TransferAnswer& entered);
  void ReadJobs();
  void ReadOne(const Job& job, std::vector<std::byte>* block);

  const std::unique_ptr<BlockStore> store_;
  const PromptCacheParts parts_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::deque<TransferAnswer> entered_;  // to be written; at most one, as it is asked for one by one
  std::deque<Job> jobs_;                // have their room
  int64_t fetched_requests_ = 0;        // that had blocks read, also where not all could be
  std::thread writer_, reader_;
};

}  // namespace tactus
