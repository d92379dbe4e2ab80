// The checks by subject; contract.cc lists them.
#pragma once

#include "contract/contract.h"

namespace tactus::contract {

std::span<const Check> ScheduleChecks();
std::span<const Check> PipelineChecks();
std::span<const Check> CopyChecks();
std::span<const Check> SamplingChecks();
std::span<const Check> DraftChecks();
std::span<const Check> LimitChecks();

}  // namespace tactus::contract
