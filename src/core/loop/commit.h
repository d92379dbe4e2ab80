// Commits the results of steps, in order: tokens, ends, errors, rejected drafts. The pass delivers their events. Thread
// rule: engine thread only.
#pragma once

#include <functional>
#include <vector>

#include "core/loop/live_requests.h"
#include "core/loop/pass_events.h"
#include "core/loop/steps_in_flight.h"
#include "core/sched/scheduler.h"

namespace tactus::core {

class Commit {
 public:
  using GiveUp = std::function<void(const Status& why)>;

  // All arguments outlive it. `give_up` is called once, after max_errors_in_a_row executor errors, or
  // when the device has failed.
  Commit(const LoopContext& context, PlanBuilder* builder, StepsInFlight* steps, LiveRequests* live, PassEvents* events,
         GiveUp give_up);

  // Commits all results that the executor has. False: none.
  bool Ready();

 private:
  void CommitStep();
  StepRecord RecordOf(const StepPlan& plan, bool ok) const;
  void FailStep(const InFlight& f);
  void RequeueReadersOfFailedBlocks();
  void VoidFailedItems(const InFlight& f);
  void CommitItem(size_t index, const StepItem& item, uint32_t planned_epoch);
  void CommitAsPlanned(const InFlight& f);
  bool FitsPlan(const StepItem& item, const ItemResult& r) const;
  void PassOnPromptLogprobs(size_t index, const StepItem& item);
  bool AppendToken(SlotId s, size_t index, int32_t nth, TokenId token);
  TokenEvent* AddTokenEvent(const SlotEntry& slot, TokenId token, DurationNs gap_ns);
  void TakeLogprobs(size_t index, int32_t nth, TokenEvent* event);
  bool EndsGrammar(const SlotEntry& slot, TokenId token) const;
  FinishReason StopReason(const SlotEntry& slot, int32_t count, TokenId token, int32_t* stop_string) const;
  void DraftsVerified(SlotId s, const StepItem& item, int32_t accepted_drafts);
  void NoteNewTokens(SlotId s);
  void AskForDrafts();

  const StepLoopConfig& config_;
  const StepLoopParts& parts_;
  const ExecutorTraits& traits_;
  PlanBuilder& builder_;
  StepsInFlight& steps_;
  LiveRequests& live_;
  PassEvents& events_;
  GiveUp give_up_;  // empty: it has been called

  StepResult result_;                                      // its buffers are exchanged with the executor's
  size_t logprob_cursor_ = 0, prompt_logprob_cursor_ = 0;  // positions in the current result
  int32_t errors_in_a_row_ = 0;
  std::vector<SlotId> recompute_;   // scratch
  std::vector<SlotId> new_tokens_;  // sequences with new tokens in this pass
  std::vector<DraftTask> tasks_;    // of those that have not ended
  double least_chance_ = 0;         // StepPlan::least_chance of the last committed step
};

}  // namespace tactus::core
