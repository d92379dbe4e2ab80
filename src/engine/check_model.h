// What a start finds out about a model before it reads weights or takes memory. The start itself, `tactus models
// inspect` and a server without a port ask the same questions here, so that they give the same answers.
#pragma once

#include "base/clock.h"
#include "compute/model/loader.h"
#include "engine/model_text.h"
#include "tactus/options.h"

namespace tactus::engine {

// Configuration, tokeniser and chat template. Errors are those of a start.
Result<ModelText> CheckModel(const EngineOptions& options, const compute::ModelDescription& description);

// That, what computes it, and every tensor's presence, shape and dtype against the configuration, from headers alone.
Status CheckStart(const EngineOptions& options, const compute::ModelDescription& description, Clock& clock);

}  // namespace tactus::engine
