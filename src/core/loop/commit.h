// Takes in the results of steps, in order: tokens, ends, errors, what was not accepted. What is committed is delivered
// with the pass. Thread rule: engine thread only.
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

  // All outlive it. `give_up` is called once, after too many executor errors in a row.
  Commit(const LoopContext& context, PlanBuilder* builder, StepsInFlight* steps, LiveRequests* live, PassEvents* events,
         GiveUp give_up);

  // Every result that is there. False: none was.
  bool Ready();

 private:
  void CommitStep();
  StepRecord RecordOf(const StepPlan& plan, bool ok) const;
  void FailStep(const InFlight& f);
  void StartAgainWhatReadNothing();
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

  StepResult result_;                                      // its buffers go round between here and the executor
  size_t logprob_cursor_ = 0, prompt_logprob_cursor_ = 0;  // within the result that is being committed
  int32_t errors_in_a_row_ = 0;
  std::vector<SlotId> recompute_;   // scratch
  std::vector<SlotId> new_tokens_;  // sequences that have some, in this pass
  std::vector<DraftTask> tasks_;    // of them, those that go on
  double least_chance_ = 0;         // of a guess, as the newest step said
};

}  // namespace tactus::core
