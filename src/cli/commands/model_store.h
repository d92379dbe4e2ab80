// The models on this machine, in the catalogue and in the hub's cache: `tactus models list` and `tactus models rm`.
#pragma once

#include <string>

namespace tactus::cli {

// Both return the exit status.
int ListModels(bool json);
int RemoveModel(const std::string& name);

}  // namespace tactus::cli
