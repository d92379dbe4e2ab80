// The rules of Vidur's schedulers that none of our choices has, as compositions to inject (SchedulerConfig has the
// rest):
// sarathi, vllm: a decode preempts while no block is free, even when it needs none.
// sarathi: the budget never limits decodes; a prompt without an item comes before the decodes in the next step.
// vllm: the prompts of a step count as padded to the longest.
#pragma once

#include <memory>

#include "core/sched/policy.h"
#include "vidur/vidur_case.h"

namespace tactus::vidur {

std::unique_ptr<core::Composition> MakeComposition(const Rules& rules);

}  // namespace tactus::vidur
