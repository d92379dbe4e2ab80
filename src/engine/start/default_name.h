// The name that the API gives a model for which --served-model-name has none.
#pragma once

#include <string>

namespace tactus::engine {

// `asked`: the model's name or path as given; `path`: where it was found. A model of the catalogue has the catalogue's
// name, any other that of its file or folder.
std::string DefaultServedName(const std::string& asked, const std::string& path);

}  // namespace tactus::engine
