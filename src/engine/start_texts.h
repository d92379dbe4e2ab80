// Lines that a start prints about what was chosen.
#pragma once

#include "base/backend.h"
#include "compute/model/loader.h"
#include "core/sched/scheduler.h"
#include "tactus/options.h"

namespace tactus::engine {

void SayScheduler(const core::Scheduler& scheduler, const EngineOptions& options, const Backend::Say& say);
// How requests are sampled that do not say, and by whose choice.
void SaySampling(const compute::ModelDescription& description, const EngineOptions& options, const Backend::Say& say);
// A warning where the KV memory has cut the context and --max-model-len has not asked for it.
void SayCutContext(const compute::ModelConfig& config, const MemoryGrant& memory, const EngineOptions& options,
                   const Backend::Say& say);

}  // namespace tactus::engine
