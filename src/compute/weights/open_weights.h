// Opens the weights that a ModelDescription describes: its files, or the generator of dummy weights. Every tensor's
// shape and dtype is checked against the config. Knows nothing of the forms in which backends compute.
#pragma once

#include <memory>
#include <optional>

#include "compute/weights/dummy_weights.h"
#include "compute/weights/file_weights.h"
#include "compute/weights/model_description.h"
#include "compute/weights/tensor_file.h"
#include "compute/weights/weight_builder.h"

namespace tactus::compute {

struct OpenedWeights {
  TensorSet tensors;  // of files; the source refers to it
  const TensorNames* names = &kHfTensorNames;
  std::unique_ptr<WeightSource> source;
  ModelWeights weights;  // under MatrixUse::kRows the values of matrices are read through the source alone
};

// `description` outlives the result. `dummy`: seeded random weights of the description's config, in f32 under
// MatrixUse::kF32; else the description's files. kNotFound: no (complete) weights. kDataLoss: a tensor is missing, has
// another shape, or has no place in the architecture.
Result<std::unique_ptr<OpenedWeights>> OpenWeights(const ModelDescription& description, MatrixUse use,
                                                   const std::optional<DummyWeights>& dummy = std::nullopt);

// Runs OpenWeights' checks on headers alone: all tensors must exist with the configured shapes and dtypes.
Status CheckWeights(const ModelDescription& description);

}  // namespace tactus::compute
