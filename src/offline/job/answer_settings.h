// What the engine's options say about answers: a job that goes on with others would not be one job.
#pragma once

#include <string>

#include "offline/job/job.h"
#include "tactus/engine.h"
#include "tactus/options.h"

namespace tactus::offline {

// Known before anything is loaded. `model_path`: where ResolveModel found it. kNotFound and the like: --chat-template
// cannot be read.
Result<JobSettings> SettingsOf(const EngineOptions& options, const std::string& model_path);
// Known when the model is loaded.
JobSettings SettingsOf(const ModelInfo& model);

}  // namespace tactus::offline
