// Plans the next step: passes the state to the scheduler, applies its plan to the sequences, and submits the plan to
// the executor. Thread rule: engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/loop/live_requests.h"
#include "core/loop/pass_events.h"
#include "core/loop/shared_prefixes.h"
#include "core/loop/steps_in_flight.h"
#include "core/sched/scheduler.h"

namespace tactus::core {

class Planning {
 public:
  // All arguments outlive it.
  Planning(const LoopContext& context, PlanBuilder* builder, StepsInFlight* steps, LiveRequests* live,
           PassEvents* events);

  // Precondition: fewer steps in flight than the executor accepts. False: nothing to plan. `paused`: a sequence is
  // paused, and all others may wait for its KV.
  bool PlanAndSubmit(bool paused);
  bool copies_wait() const { return !carried_swap_outs_.empty(); }  // swap-outs wait for the next step
  // Passes newly arrived first choices to the scheduler's gate, oldest first, and ends those that it refuses. At most a
  // bounded number per pass; the next pass continues. False: there were none.
  bool AskGate();

  uint64_t plan_hash() const { return plan_hash_; }  // over all plans so far, in order
  void KeepHashes() { keep_hashes_ = true; }
  const std::vector<uint64_t>* hashes() const { return keep_hashes_ ? &hashes_ : nullptr; }
  // Means over all steps: planned tokens / budget, blocks in use / all blocks.
  double budget_utilization() const { return budget_tokens_ > 0 ? planned_tokens_ / budget_tokens_ : 0; }
  double kv_utilization() const;

 private:
  StepView View();
  void AskScheduler(StepPlan* plan);
  void TellTap();
  void Apply(InFlight* f);
  void CopyTokens(StepItem* item, StepPlan* plan) const;
  void Submit(InFlight* f);

  const StepLoopConfig& config_;
  const StepLoopParts& parts_;
  const ExecutorTraits& traits_;
  PlanBuilder& builder_;
  StepsInFlight& steps_;
  LiveRequests& live_;
  PassEvents& events_;

  std::optional<SharedPrefixes> prefixes_;   // null: plans have no prefixes
  bool some_left_out_ = false;               // the step submitted last had no item of some running sequence
  int64_t previous_prefill_tokens_ = 0;      // of the step submitted last
  std::vector<SwapCopy> carried_swap_outs_;  // of a plan without items
  uint64_t plan_hash_ = 0;
  bool keep_hashes_ = false;
  std::vector<uint64_t> hashes_;
  double budget_tokens_ = 0, planned_tokens_ = 0, kv_use_sum_ = 0;  // kv: blocks in use, summed over steps
};

}  // namespace tactus::core
