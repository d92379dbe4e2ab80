// This machine's models by name: the contents of the cache folder. Reads the file system on each call; no state.
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

// A model's name by its path: a .gguf file's without its extension and its number as a part, a folder's.
std::string ModelNameOf(const std::string& path);

// Every model under <cache_folder>/models, by name: folders with a config.json, and .gguf files, a split model by its
// first. A folder's only .gguf file has the folder's name.
std::vector<CatalogEntry> ListModels(const std::string& cache_folder = CacheFolder());

// A path is returned unchanged, a name is looked up in the catalogue, empty is the default model. kNotFound lists the
// installed models and how to get the default model or pass a file.
Result<std::string> ResolveModel(const std::string& name_or_path, const std::string& cache_folder = CacheFolder());

}  // namespace tactus::compute
