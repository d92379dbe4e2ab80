// The rules of Vidur's schedulers that no choice of ours has, as compositions to inject (SchedulerConfig takes the
// rest):
//   sarathi, vllm  a decode preempts while no block is free, even when it needs none
//   sarathi        decodes are never limited by the budget; a prompt that gets nothing comes before the decodes in the
//   next step vllm           the prompts of a step are padded to the longest when they are counted
#pragma once

#include <memory>

#include "core/sched/policy.h"
#include "vidur/vidur_case.h"

namespace tactus::vidur {

std::unique_ptr<core::Composition> MakeComposition(const Rules& rules);

}  // namespace tactus::vidur
