#include "engine/check_model.h"

namespace tactus {

Result<CheckedModel> CheckModel(const EngineOptions& options, const ModelDescription& description) {
  CheckedModel model;
  TACTUS_RETURN_IF_ERROR(ValidateConfig(description.config));
  const bool dummy = options.load_format == "dummy";
  TACTUS_ASSIGN_OR_RETURN(model.text, LoadModelText(description, {options.chat_template, dummy}));
  TACTUS_ASSIGN_OR_RETURN(model.numerics, ChooseModelNumerics(options, description));
  return model;
}

Status CheckStart(const EngineOptions& options, const ModelDescription& description) {
  TACTUS_RETURN_IF_ERROR(CheckModel(options, description).status());
  return options.load_format == "dummy" ? Status() : CheckWeights(description);
}

}  // namespace tactus
