#include "engine/start/check_model.h"

#include "compute/exec/make_backend.h"
#include "compute/weights/open_weights.h"

namespace tactus::engine {

Result<ModelText> CheckModel(const EngineOptions& options, const compute::ModelDescription& description) {
  TACTUS_RETURN_IF_ERROR(compute::ValidateConfig(description.config));
  return LoadModelText(description, {options.chat_template, options.load_format == "dummy"});
}

Status CheckStart(const EngineOptions& options, const compute::ModelDescription& description, Clock& clock) {
  TACTUS_RETURN_IF_ERROR(CheckModel(options, description).status());
  TACTUS_RETURN_IF_ERROR(compute::MakeBackend(options, description, clock).status());
  return options.load_format == "dummy" ? Status() : compute::CheckWeights(description);
}

}  // namespace tactus::engine
