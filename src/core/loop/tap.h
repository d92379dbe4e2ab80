// The hooks by which the step loop reports its inputs, so that a run can be recorded and replayed
// (core/trace/trace_writer.h). The loop has no other tie to recordings.
#pragma once

#include <span>

#include "base/hash.h"
#include "base/step.h"
#include "core/interfaces/draft_source.h"
#include "core/loop/intake.h"

namespace tactus::core {

// Calls of a pass: BeginPass, then its inputs in this order of kinds: arrivals, cancels, transfers, results, drafts, an
// abort, plans; then EndPass. Engine thread only. No call may block.
class LoopTap {
 public:
  virtual ~LoopTap() = default;
  virtual void BeginPass(TimeNs now_ns) = 0;
  virtual void Arrival(const PreparedRequest& request) = 0;
  // The prediction of a predictor that does not learn, for the sequence that has just arrived.
  virtual void Predicted(int32_t tokens) = 0;
  // The last arrival was migrated in.
  virtual void Imported(const ImportedSequence& sequence) = 0;
  virtual void Cancel(RequestHandle handle) = 0;
  // A command that took effect (core/loop/transfers.h).
  virtual void Transferred(const TransferCommand& command) = 0;
  virtual void Abort() = 0;
  // Token number `token` of item `item` ended its sequence by a stop id or stop string. Called before the step's
  // StepEnded.
  virtual void Stopped(int32_t item, int32_t token) = 0;
  // The key of a block of generated text.
  virtual void Key(RequestHandle handle, int32_t choice, int32_t block, const Hash128& key) = 0;
  virtual void StepEnded(const StepPlan& plan, const StepResult& result, bool ok) = 0;
  // The guesses for a sequence that waits for its next token. Called after the pass's StepEnded.
  virtual void Drafted(const DraftTask& answered) = 0;
  // The scheduler made a plan, with or without a step, or its gate judged an arrival. `answers`: the results of its
  // step-time model meanwhile.
  virtual void SchedulerAsked(std::span<const DurationNs> answers) = 0;
  virtual void StepPlanned(const StepPlan& plan, uint64_t plan_hash) = 0;
  virtual void EndPass() = 0;
  // Bytes recorded so far.
  virtual int64_t position() const = 0;
  // Called once, after the last pass. Not ok: the recording is incomplete.
  virtual Status Close() = 0;
};

}  // namespace tactus::core
