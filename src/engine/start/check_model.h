// Model checks at the start of an engine, before weights are read or memory is allocated. The start itself, `tactus
// models inspect` and a server without a port all use these functions, so that they report the same errors.
#pragma once

#include "base/clock.h"
#include "compute/weights/model_description.h"
#include "engine/start/model_text.h"
#include "tactus/options.h"

namespace tactus::engine {

// Checks configuration, tokeniser and chat template. Errors are those of a start.
Result<ModelText> CheckModel(const EngineOptions& options, const compute::ModelDescription& description);

// CheckModel, the choice of a backend, and every tensor's presence, shape and dtype against the configuration; reads
// headers only.
Status CheckStart(const EngineOptions& options, const compute::ModelDescription& description, Clock& clock);

}  // namespace tactus::engine
