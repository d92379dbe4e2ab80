// An executor runs hybrid batches. One forward pass per plan: linear operators once over all tokens, attention by kind
// over the paged KV cache, logits only for the requested rows, sampling.
//
// Thread rule: the engine thread calls every function, unless noted otherwise; threads of the executor call only the
// wake-up. Contract (tests/contract checks it over the executors that compute tokens): Submit never blocks and never
// fails; results come back in submission order, exactly one per submitted plan; at most max_in_flight plans are
// outstanding; within a step, in each layer, every write of K and V comes before every attention read, so that items
// may share blocks written in that step. Tokens and logprobs of a sequence depend on its own tokens and on the choice,
// adapter and sampling of its SequenceStart alone, not on chunks, other items, blocks or slots. A plan that CheckPlan
// (base/plan_limits.h) refuses fails its step, and nothing of it is applied; an input token outside the vocabulary
// fails its item.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "base/overlap_fit.h"
#include "base/step.h"

namespace tactus {

struct ExecutorTraits {
  int32_t max_in_flight = 1;
  bool can_chain = false;        // accepts InputSource::kChained, from items that sampled without drafts
  int32_t max_draft_tokens = 0;  // per item
  bool has_tokens = true;        // false: needs no token ids and returns no meaningful ones (simulation)
  const char* name = "";
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual ExecutorTraits traits() const = 0;

  // `plan` stays valid until its result is polled. Never blocks. Precondition: fewer than max_in_flight outstanding.
  virtual void Submit(const StepPlan& plan) = 0;

  // True: *result holds the oldest outstanding step's result (its buffers are reused). False: it is not ready yet.
  virtual bool Poll(StepResult* result) = 0;

  // Called from any executor thread when a Poll may succeed. Set once, before the first Submit.
  virtual void SetWakeup(std::function<void()> wakeup) = 0;

  // KV blocks as bytes, for sequences that move between engines of one format. 0: unsupported, and the two functions
  // below are never called.
  virtual int64_t kv_block_bytes() const { return 0; }
  // Fills all kv_block_bytes(). Precondition: no step in flight writes the block.
  virtual void ReadKvBlock(BlockId /*block*/, std::byte* /*to*/) const {}
  // Any thread. Precondition: no step in flight uses the host block.
  virtual void WriteHostBlock(BlockId /*host_block*/, const std::byte* /*from*/) {}

  // For `tactus profile`: times of the last step, run again in one part and in two. Nothing: the executor cannot run it
  // in two. Precondition: no step is in flight. Overwrites K and V of the step's tokens.
  virtual std::optional<OverlapTimes> MeasureOverlap() { return std::nullopt; }
  // Changes ExecutorSize::least_split_tokens for later steps. Precondition: no step is in flight.
  virtual void SplitStepsFrom(int64_t /*tokens*/) {}

  // Virtual-time executors: when the oldest outstanding step will be ready; kNever on real ones.
  virtual TimeNs NextReadyNs() const { return kNever; }
};

}  // namespace tactus
