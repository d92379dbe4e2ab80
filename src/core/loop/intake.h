// The bounded door of the step loop: requests and cancels come in on any thread, the engine thread drains them. Work
// that needs no engine state (limits, block keys, buffers) is done by the submitter in PrepareRequest.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/service_class.h"
#include "base/units.h"
#include "core/loop/transfer.h"
#include "core/seq/stop_matcher.h"
#include "tactus/engine.h"
#include "tactus/request.h"

namespace tactus::core {

// What a request is checked against before it may queue. Immutable while the engine lives.
struct IntakeLimits {
  int32_t max_model_len = 0;  // tokens, prompt and output together
  int32_t max_num_seqs = 256;
  int32_t max_queue = 2048;   // sequences waiting
  uint64_t passes_queue = 0;  // bit c: max_queue does not hold for requests of class c (PreparedRequest::service_class)
  int32_t block_size = 16;
  int64_t blocks_total = 0;
  bool prefix_caching = true;
  Hash128 secret;                       // of the block keys
  std::string model;                    // part of every key
  std::vector<TokenId> model_stop_ids;  // end a request unless it says ignore_eos
  std::vector<std::string> adapters;    // that are loaded; Request::adapter is one of them or empty
  bool forced_tokens =
      false;  // those that a grammar leaves no choice about are drafts (core/interfaces/draft_source.h)
  std::vector<ServiceClass> classes;  // that are declared; where any are, Request::slo_class is one or empty
};

// Buffers of one choice, sized for its longest life, so that the step loop does not allocate.
struct SequenceBuffers {
  std::vector<TokenId> output;      // generated so far
  std::vector<Hash128> keys;        // of full blocks known so far
  std::vector<TokenId> drafts;      // guesses at what follows the output
  std::optional<StopMatcher> stop;  // only with stop strings
  SlotId slot = kNoSlot;            // the step loop's
};

struct PreparedRequest {
  std::shared_ptr<const Request> request;  // its prompt may be null in simulations
  void* user = nullptr;                    // comes back with every event
  RequestHandle handle = 0;                // set by Intake::Submit
  TimeNs arrival_ns = -1;                  // by the loop's clock; -1: stamped by Submit
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;
  int32_t adapter = 0;          // SequenceStart::adapter
  bool passes_queue = false;    // max_queue does not hold for it
  bool tokens_on_host = false;  // each token is needed before the next is sampled (a grammar): its steps do not chain
  uint64_t client = 0;          // keyed hash of Request::client; 0: unknown
  uint8_t service_class = 0;    // SequenceColumns::service_class
  Hash128 root_key;
  bool has_keys = false;                 // false: shares nothing
  bool own_keys = false;                 // no other request can ask for its keys: made only once they may be found
  std::vector<TokenId> stop_ids;         // sorted; the model's too unless ignore_eos
  std::vector<SequenceBuffers> choices;  // n of them
  std::shared_ptr<const ImportedSequence> imported;  // null: it begins here
  // Leading blocks of its prompt that are kept on disk, and why no more are. It waits for them (TransferKind::kFetched)
  // unless the prefix cache has as many.
  int32_t stored_blocks = 0;
  CacheEnd stored_end = CacheEnd::kUnknown;
};

// Any thread. kInvalidArgument with the numbers for what can never fit.
Result<PreparedRequest> PrepareRequest(std::shared_ptr<const Request> request, const IntakeLimits& limits);
// For requests without token ids (simulation, replay): the length, and the keys of the prompt's full blocks (may be
// empty).
Result<PreparedRequest> PrepareWithoutTokens(std::shared_ptr<const Request> request, int32_t prompt_tokens,
                                             std::vector<Hash128> prompt_keys, const IntakeLimits& limits);
// The same for one whose keys no other can ask for (core/kv/kv_cache.h, OwnKeys): where they are needed after all,
// StepLoopParts::generated_key makes those of the prompt too. Precondition: one choice.
Result<PreparedRequest> PrepareWithOwnKeys(std::shared_ptr<const Request> request, int32_t prompt_tokens,
                                           const IntakeLimits& limits);

// Any thread. Makes an arrival one that has run elsewhere; times are of the loop's clock. kInvalidArgument: it has
// several choices, or lengths that no sequence of it can have.
Status AddImported(ImportedSequence imported, const IntakeLimits& limits, PreparedRequest* prepared);

class Intake {
 public:
  Intake(int32_t max_queue, int32_t capacity);

  // Any thread. kResourceExhausted when the queue is full, kUnavailable when closed. Wakes no thread: StepLoop does.
  Result<RequestHandle> Submit(PreparedRequest request, TimeNs now_ns);
  void Cancel(RequestHandle handle);
  void Transfer(TransferCommand command);
  // Ok when Submit would take so many sequences, or as many as it ever takes; kDeadlineExceeded: not within timeout_ns;
  // as Submit when closed.
  Status WaitForRoom(int32_t sequences, DurationNs timeout_ns);
  // Refuses from now on, with this status.
  void Close(Status why);

  // Engine thread. Swaps out what came in; the vectors' capacity is kept on both sides.
  bool HasInput() const { return has_input_.load(std::memory_order_acquire); }
  void Drain(std::vector<PreparedRequest>* requests, std::vector<RequestHandle>* cancels,
             std::vector<TransferCommand>* transfers);
  void SequencesDequeued(int32_t count) {
    [[maybe_unused]] const int32_t before = queued_.fetch_sub(count);
    TACTUS_DCHECK(before >= count);
  }
  void SequencesQueued(int32_t count) { queued_.fetch_add(count, std::memory_order_relaxed); }
  void SequencesFreed(int32_t count) {
    [[maybe_unused]] const int32_t before = live_.fetch_sub(count);
    TACTUS_DCHECK(before >= count);
  }
  // After a pass that may have made room: wakes who waits for it. The counts above and waiters_ are sequentially
  // consistent, so that either the waiter sees the room or this sees the waiter.
  void TellRoom() {
    if (waiters_.load() > 0) [[unlikely]]
      WakeWaiters();
  }

  int64_t live_requests() const { return live_requests_.load(std::memory_order_acquire); }
  void RequestEnded() { live_requests_.fetch_sub(1, std::memory_order_acq_rel); }

 private:
  bool HasRoom(int32_t sequences) const {
    return queued_.load() + sequences <= max_queue_ && live_.load() + sequences <= capacity_;
  }
  void WakeWaiters();

  const int32_t max_queue_;
  const int32_t capacity_;
  std::atomic<bool> has_input_{false};
  std::atomic<int32_t> queued_{0};  // sequences accepted and not running
  std::atomic<int32_t> live_{0};    // sequences accepted whose slot is not free again
  std::atomic<int64_t> live_requests_{0};
  std::atomic<int32_t> waiters_{0};  // threads in WaitForRoom
  std::mutex mutex_;
  std::condition_variable room_;
  RequestHandle next_handle_ = 1;
  Status closed_;
  std::vector<PreparedRequest> requests_;
  std::vector<RequestHandle> cancels_;
  std::vector<TransferCommand> transfers_;
};

}  // namespace tactus::core
