#include "compute/weights/open_weights.h"

#include "compute/config/architecture.h"
#include "compute/weights/gguf_split.h"
#include "compute/weights/mapped_file.h"
#include "compute/weights/quant/quantization.h"
#include "compute/weights/safetensors.h"

namespace tactus::compute {
namespace {

Result<TensorSet> OpenTensors(const ModelDescription& d) {
  if (d.source == ModelDescription::Source::kHuggingFace) {
    TACTUS_ASSIGN_OR_RETURN(TensorSet set, OpenSafetensorsFolder(d.path));
    if (d.config.text_part) set.KeepText();
    if (d.quantization != nullptr) TACTUS_RETURN_IF_ERROR(ApplyQuantization(*d.quantization, &set));
    return set;
  }
  TACTUS_ASSIGN_OR_RETURN(auto file, MappedFile::Open(d.path));
  TACTUS_ASSIGN_OR_RETURN(GgufModel model, OpenGguf(std::move(file)));
  return TensorSet{std::move(model.files), std::move(model.gguf.tensors)};
}

// A folder's names: of each expert by itself if it has one under such a name.
const TensorNames* HfNames(const Architecture& a, const ModelConfig& config, const TensorSet& set) {
  if (a.hf_names_by_expert == nullptr) return a.hf_names;
  for (const ModelTensor& t : config.Tensors()) {
    const TensorSource& source = a.hf_names_by_expert->Of(t.role);
    if (t.expert == 0 && set.tensors.contains(source.Name(t.layer, t.expert))) return a.hf_names_by_expert;
  }
  return a.hf_names;
}

Status OpenFiles(const ModelDescription& d, MatrixUse use, OpenedWeights* opened) {
  TACTUS_RETURN_IF_ERROR(d.weights_status);
  const Architecture* a = FindArchitecture(d.config.architecture);
  if (a == nullptr) return Unimplemented("architecture '" + d.config.architecture + "' is not supported");
  TACTUS_ASSIGN_OR_RETURN(opened->tensors, OpenTensors(d));
  opened->names = d.source == ModelDescription::Source::kGguf ? a->gguf_names : HfNames(*a, d.config, opened->tensors);
  opened->source = MakeFileSource(opened->tensors, *opened->names, d.path, d.config, use);
  return Status();
}

}  // namespace

Result<std::unique_ptr<OpenedWeights>> OpenWeights(const ModelDescription& d, MatrixUse use,
                                                   const std::optional<DummyWeights>& dummy) {
  TACTUS_RETURN_IF_ERROR(ValidateConfig(d.config));
  auto opened = std::make_unique<OpenedWeights>();
  if (dummy) {
    const DType dtype = use == MatrixUse::kF32 ? DType::kF32 : dummy->dtype;
    TACTUS_ASSIGN_OR_RETURN(opened->source, MakeDummySource({dummy->seed, dtype}, use == MatrixUse::kRows));
  } else {
    TACTUS_RETURN_IF_ERROR(OpenFiles(d, use, opened.get()));
  }
  TACTUS_RETURN_IF_ERROR(BuildWeights(d.config, *opened->names, *opened->source, &opened->weights));
  return opened;
}

Status CheckWeights(const ModelDescription& d) {
  return OpenWeights(d, MatrixUse::kRows).status();
}

}  // namespace tactus::compute
