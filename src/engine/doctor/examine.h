// Measures this machine, and a model on it, for `tactus doctor`. Caller's thread.
#pragma once

#include "base/backend.h"
#include "base/clock.h"
#include "engine/doctor/diagnosis.h"

namespace tactus::engine {

// `options`: those of a start. `with_model`: also loads options.model, before anything else is measured, so that a
// model that cannot be loaded is refused at once. `say` receives what the measurement does now. Errors are those of a
// start.
Result<Diagnosis> Examine(const EngineOptions& options, bool with_model, const Backend::Say& say, Clock& clock);

}  // namespace tactus::engine
