// The step loop: drains arrivals and cancels, commits results, plans, applies, submits. One thread owns all its state;
// any thread submits requests and cancels through the intake. The same class serves, replays and simulates: only the
// clock and the executor differ.
//
// Invariants: an accepted request gets exactly one RequestDoneEvent; a sequence's KV is released once, at its end;
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
  int32_t slot_capacity = 0;        // most live sequences; 0: max_queue + max_num_seqs
  int32_t max_errors_in_a_row = 3;  // executor errors; then healthy() is false and the loop refuses requests.
                                    // So is it at once when the device has failed (StepResult::device_failed)
  int32_t max_draft_tokens = 0;     // most of one sequence in one step; needs StepLoopParts::drafts
  bool guesses = false;             // some drafts are not sure
  bool keep_timelines = true;       // those of ended sequences can be read (Timelines::kKeptSequences)
  bool lean = false;                // as in KvCacheConfig
  bool shared_prefixes = false;     // plans have the prefixes that their decodes share (StepPlan::prefixes)

  int32_t slots() const { return slot_capacity > 0 ? slot_capacity : limits.max_queue + limits.max_num_seqs; }
};

// The parts that the loop uses; all outlive it. `tap` and `token_bytes` may be null (then there are no stop strings).
struct StepLoopParts {
  Scheduler* scheduler = nullptr;
  Executor* executor = nullptr;
  LengthPredictor* predictor = nullptr;  // the one in the scheduler's limits, or null
  DraftSource* drafts = nullptr;         // may be null: no sequence has drafts
  KvCache* kv = nullptr;                 // max_slots = slot_capacity
  Clock* clock = nullptr;
  // Measures decision times, on which no decision depends; null: not measured. With a virtual clock: the system clock.
  Clock* stopwatch = nullptr;
  int32_t stopwatch_every = 1;  // measure every n-th plan
  EventSink* sink = nullptr;
  LoopTap* tap = nullptr;
  CorrectedStepTimes* corrected = nullptr;   // the scheduler's step-time model, if it is corrected by results
  RecordingStepTimes* step_times = nullptr;  // with `tap`: wraps the scheduler's step-time model, if any
  std::function<std::string_view(TokenId)> token_bytes;
  std::string about;  // configuration and seed, for crash reports
  // Replay: the recorded key of a block of generated text (its tokens are not in a trace). Null: computed from tokens.
  std::function<Hash128(RequestHandle, int32_t choice, int32_t block)> generated_key;
};

// Shared by the parts of the loop (live_requests.h, commit.h, step_plan.h).
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
  // kResourceExhausted: queue full; kUnavailable: closed or not healthy. A refused request has no events.
  Result<RequestHandle> Submit(PreparedRequest request);
  void Cancel(RequestHandle handle);       // unknown or ended: no effect
  void Transfer(TransferCommand command);  // core/loop/transfers.h; answered at a later pass
  Status WaitForRoom(int32_t sequences, DurationNs timeout_ns) { return intake_.WaitForRoom(sequences, timeout_ns); }
  void StopAccepting(Status why);  // accepted requests continue
  void Abort(Status why);          // ends all accepted requests with kError and this status, at the next pass
  void Stop();                     // Run returns after the current pass; live requests stay unfinished
  int64_t live_requests() const { return intake_.live_requests(); }
  bool healthy() const { return healthy_.load(std::memory_order_acquire); }
  Status Failure() const;                                                    // why it is not healthy; ok while it is
  EngineStats Stats() const;                                                 // a consistent snapshot of the last pass
  std::vector<RequestTimeline> Timelines(const TimelineQuery& query) const;  // live requests as of the last pass
  std::vector<RequestHandle> LiveHandles() const;                            // as of the last pass

  // --- Engine thread ---
  // One pass. True: it did something; false: nothing to do until input arrives or the executor signals.
  bool RunOnce();
  // Passes until Stop(), sleeping when there is nothing to do.
  void Run();
  // The sequences that hold KV, of requests that may migrate (core/loop/transfers.h), in order of admission.
  struct RunningSequence {
    RequestHandle handle = 0;
    int32_t priority = 0;
    int32_t tokens = 0;  // positions whose KV it holds
    int32_t known = 0;   // tokens of prompt and output so far
  };
  void Movable(std::vector<RunningSequence>* sequences) const;
  // As TransferKind::kReadEntered, but synchronous. Also on any thread after Run has returned. 0 blocks: none entered.
  TransferAnswer ReadEntered(int32_t blocks, const std::function<bool(const Hash128& key)>& wanted);
  bool idle() const;                                 // nothing queued, running or in flight
  uint64_t plan_hash() const;                        // over every plan so far, in order
  const std::vector<uint64_t>* plan_hashes() const;  // per submitted step; null without KeepPlanHashes
  void KeepPlanHashes();
  std::string CheckIntegrity() const;  // compares sequences, KV and steps in flight; slow

 private:
  class Impl;
  Intake intake_;
  std::atomic<bool> healthy_{true};
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::core
