// Whether a written file states the model that it was made of. Pure: any thread.
#pragma once

#include <string>

#include "compute/config/config.h"

namespace tactus::compute {

// The first part in which the two differ, for messages: "the windows of its layers". Empty: none.
std::string DifferenceOf(const ModelConfig& wanted, const ModelConfig& stated);

}  // namespace tactus::compute
