// What the step loop tells of its inputs, so that a run can be recorded and played again (core/trace/trace_writer.h).
// The loop knows nothing else of recordings.
#pragma once

#include <span>

#include "base/hash.h"
#include "base/step.h"
#include "core/interfaces/draft_source.h"
#include "core/loop/intake.h"

namespace tactus::core {

// One pass: BeginPass, then what the pass drained, in this order of kinds: arrivals, cancels, transfers, results,
// drafts, an abort, plans; then EndPass. Engine thread only. Nothing here may block.
class LoopTap {
 public:
  virtual ~LoopTap() = default;
  virtual void BeginPass(TimeNs now_ns) = 0;
  virtual void Arrival(const PreparedRequest& request) = 0;
  // What a predictor that does not learn says of a sequence that has just arrived.
  virtual void Predicted(int32_t tokens) = 0;
  // The arrival before it has run elsewhere.
  virtual void Imported(const ImportedSequence& sequence) = 0;
  virtual void Cancel(RequestHandle handle) = 0;
  // A command that did something (core/loop/transfers.h).
  virtual void Transferred(const TransferCommand& command) = 0;
  virtual void Abort() = 0;
  // Item `item`'s token number `token` ended its sequence by a stop id or stop string. Before its StepEnded.
  virtual void Stopped(int32_t item, int32_t token) = 0;
  // The key of a block of generated text.
  virtual void Key(RequestHandle handle, int32_t choice, int32_t block, const Hash128& key) = 0;
  virtual void StepEnded(const StepPlan& plan, const StepResult& result, bool ok) = 0;
  // What the draft source answered of a sequence that is to wait for its next token. After the pass's StepEnded.
  virtual void Drafted(const DraftTask& answered) = 0;
  // The scheduler was asked for a plan, whether or not a step came of it, or its gate about an arrival. `answers`: what
  // its step-time model said meanwhile.
  virtual void SchedulerAsked(std::span<const DurationNs> answers) = 0;
  virtual void StepPlanned(const StepPlan& plan, uint64_t plan_hash) = 0;
  virtual void EndPass() = 0;
  // Bytes recorded so far: where a replay gets to.
  virtual int64_t position() const = 0;
  // Once, when no pass runs any more. Not ok: the recording is incomplete.
  virtual Status Close() = 0;
};

}  // namespace tactus::core
