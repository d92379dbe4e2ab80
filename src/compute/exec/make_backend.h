// The one place that decides what computes a model.
#pragma once

#include <memory>

#include "base/backend.h"
#include "base/clock.h"
#include "compute/model/loader.h"
#include "tactus/options.h"

namespace tactus::compute {

// For this model with these options: today always the machine's processors. Reads no weights and takes no memory, so
// that a start that cannot work is refused at once: kInvalidArgument names the flag, its choices and the way out.
// `description` is copied; `clock` measures steps and loading, and outlives the backend.
Result<std::unique_ptr<Backend>> MakeBackend(const EngineOptions& options, const ModelDescription& description,
                                             Clock& clock);

}  // namespace tactus::compute
