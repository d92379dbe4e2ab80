// The factories of every value in choices.def, and what several of them share.
#pragma once

#include <memory>
#include <string>

#include "sched/policy.h"

namespace tactus::sched {

#define TACTUS_ORDER(name, make, help) std::unique_ptr<Order> make(const SchedulerLimits&);
#define TACTUS_ADMISSION(name, make, help) std::unique_ptr<Admission> make(const SchedulerLimits&);
#define TACTUS_COMPOSITION(name, make, help) std::unique_ptr<Composition> make(const SchedulerLimits&);
#define TACTUS_BUDGET(name, make, help) std::unique_ptr<Budget> make(const SchedulerLimits&);
#define TACTUS_PREEMPTION(name, make, help) std::unique_ptr<Preemption> make(const SchedulerLimits&);
#include "sched/choices.def"
#undef TACTUS_ORDER
#undef TACTUS_ADMISSION
#undef TACTUS_COMPOSITION
#undef TACTUS_BUDGET
#undef TACTUS_PREEMPTION

// Blocks that --watermark keeps out of admission's reach.
int64_t KeepFreeBlocks(const SchedulerLimits& limits);
std::unique_ptr<Budget> MakeFixedBudgetOf(int64_t tokens, std::string why);

}  // namespace tactus::sched
