// The engine options that change answers: a job may be resumed only with the same ones.
#pragma once

#include <string>

#include "offline/job/job.h"
#include "tactus/engine.h"
#include "tactus/options.h"

namespace tactus::offline {

// The settings known before the model is loaded. `model_path`: where ResolveModel found it. kNotFound and similar:
// --chat-template cannot be read.
Result<JobSettings> SettingsOf(const EngineOptions& options, const std::string& model_path);
// The settings known after the model is loaded.
JobSettings SettingsOf(const ModelInfo& model);

}  // namespace tactus::offline
