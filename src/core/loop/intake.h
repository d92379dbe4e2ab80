// The bounded input queue of the step loop: any thread submits requests and cancels, the engine thread drains them. The
// submitting thread does the work that needs no engine state (limits, block keys, buffers) in PrepareRequest.
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

// Limits that a request must meet to be queued. Immutable while the engine lives.
struct IntakeLimits {
  int32_t max_model_len = 0;  // tokens of prompt and output
  int32_t max_num_seqs = 256;
  int32_t max_queue = 2048;   // sequences waiting
  uint64_t passes_queue = 0;  // bit c: class c (PreparedRequest::service_class) is exempt from max_queue
  int32_t block_size = 16;
  int64_t blocks_total = 0;
  bool prefix_caching = true;
  Hash128 secret;                       // of the block keys
  std::string model;                    // part of every key
  std::vector<TokenId> model_stop_ids;  // end a request without ignore_eos
  std::vector<std::string> adapters;    // loaded adapters; Request::adapter is one of them or empty
  bool forced_tokens = false;           // forced tokens of grammars are drafts (core/draft/forced_tokens.h)
  std::vector<ServiceClass> classes;    // declared classes; Request::slo_class is one of them or empty
};

// Buffers of one choice, sized for its longest output, so that the step loop does not allocate.
struct SequenceBuffers {
  std::vector<TokenId> output;      // generated so far
  std::vector<Hash128> keys;        // of full blocks known so far
  std::vector<TokenId> drafts;      // draft tokens after the output
  std::optional<StopMatcher> stop;  // only with stop strings
  SlotId slot = kNoSlot;            // set by the step loop
};

struct PreparedRequest {
  std::shared_ptr<const Request> request;  // its prompt may be null in simulations
  void* user = nullptr;                    // copied to every event
  RequestHandle handle = 0;                // set by Intake::Submit
  TimeNs arrival_ns = -1;                  // by the loop's clock; -1: set by Submit
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;
  int32_t adapter = 0;          // SequenceStart::adapter
  bool passes_queue = false;    // exempt from max_queue
  bool tokens_on_host = false;  // a grammar needs each token before the next is sampled: its steps do not chain
  uint64_t client = 0;          // keyed hash of Request::client; 0: unknown
  uint8_t service_class = 0;    // SequenceColumns::service_class
  Hash128 root_key;
  bool has_keys = false;                             // false: shares no KV
  bool own_keys = false;                             // OwnKeys (core/kv/own_keys.h): computed only when needed
  std::vector<TokenId> stop_ids;                     // sorted; the model's too unless ignore_eos
  std::vector<SequenceBuffers> choices;              // n of them
  std::shared_ptr<const ImportedSequence> imported;  // null: not migrated in
  // Leading blocks of its prompt that are stored on disk, and why no more. The request waits for them
  // (TransferKind::kFetched) unless the prefix cache has as many.
  int32_t stored_blocks = 0;
  CacheEnd stored_end = CacheEnd::kUnknown;
};

// Any thread. kInvalidArgument, with the numbers: the request can never fit.
Result<PreparedRequest> PrepareRequest(std::shared_ptr<const Request> request, const IntakeLimits& limits);
// For requests without token ids (simulation, replay). `prompt_keys`: of the prompt's full blocks; may be empty.
Result<PreparedRequest> PrepareWithoutTokens(std::shared_ptr<const Request> request, int32_t prompt_tokens,
                                             std::vector<Hash128> prompt_keys, const IntakeLimits& limits);
// As above, for a request with OwnKeys (core/kv/own_keys.h): if its keys are needed, StepLoopParts::generated_key
// computes those of the prompt too. Precondition: one choice.
Result<PreparedRequest> PrepareWithOwnKeys(std::shared_ptr<const Request> request, int32_t prompt_tokens,
                                           const IntakeLimits& limits);

// Any thread. Marks the request as migrated in with this state; times by the loop's clock. kInvalidArgument: it has
// several choices, or the lengths are impossible.
Status AddImported(ImportedSequence imported, const IntakeLimits& limits, PreparedRequest* prepared);

class Intake {
 public:
  Intake(int32_t max_queue, int32_t capacity);

  // Any thread. kResourceExhausted when the queue is full, kUnavailable when closed. Wakes no thread: StepLoop does.
  Result<RequestHandle> Submit(PreparedRequest request, TimeNs now_ns);
  void Cancel(RequestHandle handle);
  void Transfer(TransferCommand command);
  // Waits until Submit would accept `sequences` sequences, or as many as it ever accepts. kDeadlineExceeded: not within
  // timeout_ns; as Submit when closed.
  Status WaitForRoom(int32_t sequences, DurationNs timeout_ns);
  // Refuses all requests from now on, with this status.
  void Close(Status why);

  // Engine thread. Swaps the queued input with the cleared arguments, so that both sides keep their capacity.
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
  // After a pass that may have made room: wakes the threads in WaitForRoom. The counts above and waiters_ are
  // sequentially consistent: either the waiting thread observes the room, or this call observes the thread.
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
  std::atomic<int32_t> queued_{0};  // accepted sequences that are not running
  std::atomic<int32_t> live_{0};    // accepted sequences whose slot is still taken
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
