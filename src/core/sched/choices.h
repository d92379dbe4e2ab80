// The factories and the knobs of every value in choices.def, and code that several of them share.
#pragma once

#include <memory>
#include <string>

#include "core/sched/policy.h"

namespace tactus::core {

#define TACTUS_CHOICE(interface, name, make, help, ...)    \
  std::unique_ptr<interface> make(const SchedulerLimits&); \
  __VA_OPT__(extern constinit const KnobList __VA_ARGS__;)
#include "core/sched/choices.def"
#undef TACTUS_CHOICE

// Blocks that admission leaves free for --watermark.
int64_t KeepFreeBlocks(const SchedulerLimits& limits);
// `most_by_step_time`: if more than 0, `tokens` follows from SchedulerLimits::StepTimes (or would if there were any),
// and this is its upper bound.
std::unique_ptr<Budget> MakeFixedBudgetOf(int64_t tokens, std::string why, int64_t most_by_step_time = 0);

}  // namespace tactus::core
