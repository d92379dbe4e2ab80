// The layers of Gemma 4, which two architectures share, and what Gemma 3n has of them.
#pragma once

#include <vector>

#include "compute/config/architecture.h"

namespace tactus::compute::arch::gemma4_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config);

inline constexpr FieldKey kShared{"num_kv_shared_layers", "attention.shared_kv_layers"};

// The last `shared` layers read K and V of the last earlier layer of their kind. Attention is each layer's first block.
void ShareKv(FamilyFields& fields, size_t shared, std::vector<Layer>* layers);

// Inputs of each token to each layer, as config.json states them; where it does not, as `defaults`.
struct InputDefaults {
  int64_t size = 0;
  int64_t rows = 0;            // of the table; 0: the vocabulary's
  bool may_lack_rows = false;  // of the vocabulary
};
void SetLayerInputs(FamilyFields& fields, const StatedShape& shape, const InputDefaults& defaults, ModelConfig* config);

// What the files of both state: which layers have windows, share K and V, and the inputs of each token.
FieldRecord SharedFields(const ModelConfig& config);

}  // namespace tactus::compute::arch::gemma4_family
