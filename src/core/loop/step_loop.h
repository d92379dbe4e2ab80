// The step loop: drains arrivals and cancels, commits results, plans, applies, submits. One thread owns everything in
// it; requests and cancels come through the intake from any thread. The same object serves, replays and simulates: only
// the clock and the executor differ.
//
// Invariants: an accepted request gets exactly one RequestDoneEvent; a sequence's KV is given back at its end, once;
// blocks are reused only after the last step in flight that uses them. No allocation in the steady state (a pass
// without arrivals and ends).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "core/interfaces/draft_source.h"
#include "core/kv/kv_cache.h"
#include "core/loop/corrected_step_times.h"
#include "core/loop/events.h"
#include "core/loop/intake.h"
#include "core/loop/recording_step_times.h"
#include "core/loop/tap.h"
#include "core/sched/scheduler.h"
#include "tactus/timeline.h"

namespace tactus::core {

struct StepLoopConfig {
  IntakeLimits limits;
  int32_t slot_capacity = 0;        // live sequences; 0: max_queue + max_num_seqs
  int32_t max_errors_in_a_row = 3;  // executor errors, then healthy() is false and the loop refuses
  int32_t max_draft_tokens = 0;     // of one sequence in one step; with StepLoopParts::drafts
  bool guesses = false;             // some drafts are not sure
  bool shared_prefixes = false;     // plans say which prefixes their decodes share (StepPlan::prefixes)

  int32_t slots() const { return slot_capacity > 0 ? slot_capacity : limits.max_queue + limits.max_num_seqs; }
};

// What the loop is given; all outlive it. `tap` and `token_bytes` may be null (no stop strings then).
struct StepLoopParts {
  Scheduler* scheduler = nullptr;
  Executor* executor = nullptr;
  LengthPredictor* predictor = nullptr;  // the one in the scheduler's limits, or null
  DraftSource* drafts = nullptr;         // may be null: no sequence has drafts
  KvCache* kv = nullptr;                 // max_slots = slot_capacity
  Clock* clock = nullptr;
  // Measures decision times, which no decision sees; null: they are not measured. Beside a virtual clock the system's.
  Clock* stopwatch = nullptr;
  int32_t stopwatch_every = 1;  // measure one plan in so many
  EventSink* sink = nullptr;
  LoopTap* tap = nullptr;
  CorrectedStepTimes* corrected = nullptr;   // the scheduler's step-time model, if it is to learn from results
  RecordingStepTimes* step_times = nullptr;  // with `tap`: between the scheduler and its step-time model, if it has one
  std::function<std::string_view(TokenId)> token_bytes;
  std::string about;  // configuration and seed, for the account of a broken invariant
  // Replay: the recorded key of a block of generated text (its tokens are not in a trace). Null: computed from tokens.
  std::function<Hash128(RequestHandle, int32_t choice, int32_t block)> generated_key;
};

// What each part of the loop (live_requests.h, commit.h, step_plan.h) is given.
struct LoopContext {
  StepLoopConfig config;
  StepLoopParts parts;
  ExecutorTraits traits;
};

class StepLoop {
 public:
  StepLoop(const StepLoopConfig& config, StepLoopParts parts);
  ~StepLoop();

  // --- Any thread ---
  // kResourceExhausted: queue full; kUnavailable: closed or not healthy. After an error no event mentions the request.
  Result<RequestHandle> Submit(PreparedRequest request);
  void Cancel(RequestHandle handle);       // unknown or ended: no effect
  void Transfer(TransferCommand command);  // core/loop/transfers.h; answered at a later pass
  Status WaitForRoom(int32_t sequences, DurationNs timeout_ns) { return intake_.WaitForRoom(sequences, timeout_ns); }
  void StopAccepting(Status why);  // what was accepted goes on
  void Abort(Status why);          // ends everything accepted with kError and this status, at the next pass
  void Stop();                     // Run returns after the pass it is in; what is left stays unfinished
  int64_t live_requests() const { return intake_.live_requests(); }
  bool healthy() const { return healthy_.load(std::memory_order_acquire); }
  EngineStats Stats() const;                                                 // a consistent snapshot of the last pass
  std::vector<RequestTimeline> Timelines(const TimelineQuery& query) const;  // of live requests as of the last pass

  // --- Engine thread ---
  // One pass. True: something happened; false: nothing to do until input comes or the executor wakes us.
  bool RunOnce();
  // Passes until Stop(), sleeping when there is nothing to do.
  void Run();
  // Those that hold KV, of requests that may move (core/loop/transfers.h), in order of admission.
  struct RunningSequence {
    RequestHandle handle = 0;
    int32_t priority = 0;
    int32_t tokens = 0;  // whose KV it holds
    int32_t known = 0;   // tokens of its prompt and its answer so far, whose KV it will hold in a few steps
  };
  void Movable(std::vector<RunningSequence>* sequences) const;
  // As TransferKind::kReadEntered, at once; also by whoever has seen Run return. No blocks: there are none.
  TransferAnswer ReadEntered(int32_t blocks, const std::function<bool(const Hash128& key)>& wanted);
  bool idle() const;                                 // nothing queued, running or in flight
  uint64_t plan_hash() const;                        // over every plan so far, in order
  const std::vector<uint64_t>* plan_hashes() const;  // per submitted step, when KeepPlanHashes was asked for
  void KeepPlanHashes();
  std::string CheckIntegrity() const;  // sequences against KV against steps in flight; slow

 private:
  class Impl;
  Intake intake_;
  std::atomic<bool> healthy_{true};
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::core
