#include "engine/check_model.h"

#include "compute/exec/make_backend.h"

namespace tactus {

Result<ModelText> CheckModel(const EngineOptions& options, const ModelDescription& description) {
  TACTUS_RETURN_IF_ERROR(ValidateConfig(description.config));
  return LoadModelText(description, {options.chat_template, options.load_format == "dummy"});
}

Status CheckStart(const EngineOptions& options, const ModelDescription& description, Clock& clock) {
  TACTUS_RETURN_IF_ERROR(CheckModel(options, description).status());
  TACTUS_RETURN_IF_ERROR(MakeBackend(options, description, clock).status());
  return options.load_format == "dummy" ? Status() : CheckWeights(description);
}

}  // namespace tactus
