// Makes the next step: shows the scheduler what there is, applies what it decides to the sequences, and hands the plan
// to the executor. Thread rule: engine thread only.
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
  // All outlive it.
  Planning(const LoopContext& context, PlanBuilder* builder, StepsInFlight* steps, LiveRequests* live,
           PassEvents* events);

  // Precondition: fewer steps in flight than the executor takes. False: there is nothing to plan. `paused`: a sequence
  // is, and its KV may be what all others wait for.
  bool PlanAndSubmit(bool paused);
  bool copies_wait() const { return !carried_swap_outs_.empty(); }  // for the next step
  // Asks the scheduler's gate about first choices that have come, the oldest first, and ends those that it refuses. Not
  // about more than a pass has time for; the next pass goes on. False: there was none to ask about.
  bool AskGate();

  uint64_t plan_hash() const { return plan_hash_; }  // over every plan so far, in order
  void KeepHashes() { keep_hashes_ = true; }
  const std::vector<uint64_t>* hashes() const { return keep_hashes_ ? &hashes_ : nullptr; }
  // Means over all steps: planned tokens / budget, blocks in use / all.
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

  std::optional<SharedPrefixes> prefixes_;   // null: plans do not say
  bool some_left_out_ = false;               // a running sequence of the step submitted last
  int64_t previous_prefill_tokens_ = 0;      // of the step submitted last
  std::vector<SwapCopy> carried_swap_outs_;  // of a plan without items
  uint64_t plan_hash_ = 0;
  bool keep_hashes_ = false;
  std::vector<uint64_t> hashes_;
  double budget_tokens_ = 0, planned_tokens_ = 0, kv_use_sum_ = 0;  // kv: blocks in use, summed over steps
};

}  // namespace tactus::core
