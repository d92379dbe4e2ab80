// Selects the backend that computes a model.
#pragma once

#include <memory>

#include "base/backend.h"
#include "base/clock.h"
#include "compute/weights/model_description.h"
#include "tactus/options.h"

namespace tactus::compute {

// The backend for this model and these options; currently always the CPU. Reads no weights and allocates no memory, so
// an impossible start is refused at once: kInvalidArgument names the flag, its choices and a remedy. `description` is
// copied. `clock` measures steps and loading and outlives the backend.
Result<std::unique_ptr<Backend>> MakeBackend(const EngineOptions& options, const ModelDescription& description,
                                             Clock& clock);

}  // namespace tactus::compute
