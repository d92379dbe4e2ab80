// The models that this machine has under a name: what lies in the cache folder. Reads the file system each time; no
// state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/cache_folder.h"
#include "tactus/status.h"

namespace tactus::compute {

inline constexpr std::string_view kDefaultModelName = "smollm2-135m";

struct CatalogEntry {
  std::string name;
  std::string path;  // a GGUF file or a Hugging Face folder
  bool is_default = false;
};

// Every model under <cache_folder>/models, by name: folders with a config.json, and .gguf files (a folder's only one
// goes by the folder's name).
std::vector<CatalogEntry> ListModels(const std::string& cache_folder = CacheFolder());

// A path as it is, a name through the catalogue, empty: the default model. kNotFound says what there is and how to get
// the default model or point at a file.
Result<std::string> ResolveModel(const std::string& name_or_path, const std::string& cache_folder = CacheFolder());

}  // namespace tactus::compute
