// The layers of Gemma 4, which two architectures share.
#pragma once

#include <vector>

#include "compute/config/architecture.h"

namespace tactus::compute::arch::gemma4_family {

std::vector<Layer> Layers(FamilyFields& fields, const StatedShape& shape, ModelConfig* config);

}  // namespace tactus::compute::arch::gemma4_family
