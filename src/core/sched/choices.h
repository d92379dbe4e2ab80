// The factories and the knobs of every value in choices.def, and code that several of them share.
#pragma once

#include <memory>
#include <string>

#include "core/sched/policy.h"

namespace tactus::core {

#define TACTUS_CHOICE(interface, make, ...)                \
  std::unique_ptr<interface> make(const SchedulerLimits&); \
  __VA_OPT__(extern constinit const KnobList __VA_ARGS__;)
#define TACTUS_ORDER(name, make, help, ...) TACTUS_CHOICE(Order, make, __VA_ARGS__)
#define TACTUS_ADMISSION(name, make, help, ...) TACTUS_CHOICE(Admission, make, __VA_ARGS__)
#define TACTUS_COMPOSITION(name, make, help, ...) TACTUS_CHOICE(Composition, make, __VA_ARGS__)
#define TACTUS_BUDGET(name, make, help, ...) TACTUS_CHOICE(Budget, make, __VA_ARGS__)
#define TACTUS_PREEMPTION(name, make, help, ...) TACTUS_CHOICE(Preemption, make, __VA_ARGS__)
#define TACTUS_GATE(name, make, help, ...) TACTUS_CHOICE(Gate, make, __VA_ARGS__)
#include "core/sched/choices.def"
#undef TACTUS_CHOICE
#undef TACTUS_ORDER
#undef TACTUS_ADMISSION
#undef TACTUS_COMPOSITION
#undef TACTUS_BUDGET
#undef TACTUS_PREEMPTION
#undef TACTUS_GATE

// Blocks that admission leaves free for --watermark.
int64_t KeepFreeBlocks(const SchedulerLimits& limits);
// `most_by_step_time`: if more than 0, `tokens` follows from SchedulerLimits::StepTimes (or would if there were any),
// and this is its upper bound.
std::unique_ptr<Budget> MakeFixedBudgetOf(int64_t tokens, std::string why, int64_t most_by_step_time = 0);

}  // namespace tactus::core
