// Lines that a start prints about its choices.
#pragma once

#include "base/backend.h"
#include "compute/weights/model_description.h"
#include "core/sched/scheduler.h"
#include "tactus/options.h"

namespace tactus::engine {

void SayScheduler(const core::Scheduler& scheduler, const EngineOptions& options, const Backend::Say& say);
// The sampling parameters of requests that set none, and their source.
void SaySampling(const compute::ModelDescription& description, const EngineOptions& options, const Backend::Say& say);
// A warning if KV memory, not --max-model-len, limits the context.
void SayCutContext(const compute::ModelConfig& config, const MemoryGrant& memory, const EngineOptions& options,
                   const Backend::Say& say);

}  // namespace tactus::engine
