// The limits of an executor and the check of a plan against them, the same for every executor.
#pragma once

#include "base/step.h"

namespace tactus {

inline constexpr int32_t kMaxDraftTokens = 64;  // per item, of executors that verify drafts; more would be a chunk

struct PlanLimits {
  int64_t num_blocks = 0;
  int64_t swap_blocks = 0;  // 0: no swapping
  int32_t block_size = 0;   // tokens
  int64_t blocks_per_slot = 0;
  int32_t max_slots = 0;
  int64_t max_step_tokens = 0;
  int64_t max_step_items = 0;
  int32_t max_draft_tokens = 0;  // per item; 0: no drafts
  int32_t adapters = 0;
  bool can_chain = true;
  bool has_logprobs = true;
  bool has_grammars = true;
};

// kInternal if a value of `plan` that indexes memory is beyond its limit, or if the plan needs what the executor does
// not offer. The message has the step, the value and the limit.
Status CheckPlan(const StepPlan& plan, const PlanLimits& limits);

}  // namespace tactus
