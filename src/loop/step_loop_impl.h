// Inside of StepLoop, shared by step_loop.cc (passes, threads), commit.cc (results and ends) and step_plan.cc (plans).
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "loop/request_table.h"
#include "loop/step_loop.h"
#include "seq/sequence_table.h"

namespace tactus {

// A few counters that any thread may read as one consistent set: a sequence lock over relaxed atomics. One writer.
class StatsCell {
 public:
  void Write(const EngineStats& stats);
  EngineStats Read() const;

 private:
  static constexpr size_t kWords = sizeof(EngineStats) / sizeof(uint64_t);
  std::atomic<uint64_t> version_{0};
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

// Wakes the sleeping loop from any thread. Shared with the executor, whose threads may outlive the loop by a call.
class WakeUp {
 public:
  void Signal();
  void Arm() { signalled_.store(false, std::memory_order_release); }  // before the pass that looks for work
  void Wait();

 private:
  std::atomic<bool> signalled_{false};
  std::mutex mutex_;
  std::condition_variable condition_;
};

struct StepLoop::Impl {
  Impl(const StepLoopConfig& config, StepLoopParts parts, Intake* intake, std::atomic<bool>* healthy);

  struct InFlight {
    StepPlan plan;
    std::vector<uint32_t> epochs;  // of the items' sequences, when planned
  };

  std::string Account() const;  // for people, of a loop that is broken

  // --- one pass (step_loop.cc) ---
  bool RunOnce();
  bool DrainInput();
  void TakeRequest(PreparedRequest request);
  void BindPredictor(SlotId s, const RequestRecord& request);
  void Deliver();
  void PublishStats();

  // --- results (commit.cc) ---
  bool CommitReady();
  void CommitStep();
  void CommitItem(size_t index, const StepItem& item, uint32_t planned_epoch);
  bool FitsPlan(const StepItem& item, const ItemResult& r) const;
  void VoidFailedItems(const StepPlan& plan, const std::vector<uint32_t>& epochs);
  void FailStep();
  void CommitAsPlanned(const InFlight& f);
  bool AppendToken(SlotId s, size_t index, int32_t nth, TokenId token);
  TokenEvent* AddTokenEvent(const SlotEntry& slot);
  void AddGap(SlotEntry* slot);
  void TakeLogprobs(size_t index, int32_t nth, TokenEvent* event);
  FinishReason StopReason(const SlotEntry& slot, int32_t count, TokenId token, int32_t* stop_string) const;
  void AddKey(SlotId s);
  void ProposeDrafts(SlotId s);
  void ReleaseSiblings(RequestRecord* request, SlotId parent);
  // Ends a sequence in whatever state; `event` carries the reason if the token that ended it is there, else one is
  // made.
  void Finish(SlotId s, FinishReason reason, TokenEvent* event, int32_t error);
  void DropItem(SlotId s);
  void FreeSlot(SlotId s);
  void FinishAll(FinishReason reason, const Status& why);
  int32_t AddError(const Status& status);
  void Requeue(SlotId s);  // its KV is gone; back to the queue

  // --- plans (step_plan.cc) ---
  bool PlanAndSubmit();
  void Apply(StepPlan* plan);
  void StartSequence(SequenceStart* start, int32_t first_position);
  void CopyTokens(StepItem* item, StepPlan* plan) const;
  uint64_t HashOf(const StepPlan& plan) const;

  const StepLoopConfig config;
  const StepLoopParts parts;
  const ExecutorTraits traits;
  const bool wants_tokens;
  const bool drafting;
  Intake& intake;
  std::atomic<bool>& healthy;
  const int32_t block_size;

  SequenceTable table;
  RequestTable requests;
  std::vector<SlotEntry> slots;
  sched::PlanBuilder builder;

  std::vector<InFlight> ring;  // traits.max_in_flight
  size_t ring_head = 0, ring_count = 0;
  StepResult result;
  size_t logprob_cursor = 0, prompt_logprob_cursor = 0;  // within the result that is being committed

  int64_t previous_prefill_tokens = 0;  // of the step submitted last
  TimeNs now_ns = 0;                    // of this pass: the one time that decisions see
  StepId next_step = 0;
  std::array<StepRecord, 128> recent{};
  size_t recent_count = 0;
  int32_t errors_in_a_row = 0;
  std::vector<SlotId> recompute;
  std::vector<SwapCopy> carried_swap_outs;  // of a plan without items
  std::vector<TokenId> key_tokens;          // [block_size]
  std::vector<PreparedRequest> drained;
  std::vector<RequestHandle> cancels;

  // Events of this pass.
  std::vector<StepRecord> step_events;
  std::vector<ScheduledEvent> scheduled_events;
  std::vector<GapEvent> gap_events;
  std::vector<TokenEvent> token_events;
  std::vector<PromptLogprobsEvent> prompt_logprob_events;
  std::vector<RequestDoneEvent> done_events;
  std::vector<std::vector<TokenLogprob>> logprob_events;
  std::vector<Status> error_events;

  // Figures.
  EngineStats stats;
  StatsCell published;
  DurationNs decision_ns = -1;  // of this pass's plan
  uint64_t plan_hash = 0;
  bool keep_hashes = false;
  std::vector<uint64_t> hashes;
  double budget_tokens = 0, planned_tokens = 0, kv_use_sum = 0;  // kv: blocks in use, summed over steps

  std::shared_ptr<WakeUp> wake = std::make_shared<WakeUp>();
  std::atomic<bool> stopping{false};
  std::atomic<bool> abort{false};
  std::mutex abort_mutex;
  Status abort_status;  // under abort_mutex
};

}  // namespace tactus
