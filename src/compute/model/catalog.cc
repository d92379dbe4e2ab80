#include "compute/model/catalog.h"

#include <algorithm>
#include <filesystem>

#include "compute/weights/gguf_split.h"

namespace tactus::compute {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> SortedEntries(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator(); it.increment(error)) {
    paths.push_back(it->path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool IsGgufModel(const fs::path& path) {
  return path.extension() == ".gguf" && !IsLaterGgufPart(path.string());
}

void AddFolder(const fs::path& folder, std::vector<CatalogEntry>* models) {
  std::error_code error;
  const std::string name = folder.filename().string();
  if (fs::exists(folder / "config.json", error)) {
    models->push_back({name, folder.string()});
    return;
  }
  std::vector<fs::path> files = SortedEntries(folder);
  std::erase_if(files, [](const fs::path& p) { return !IsGgufModel(p); });
  for (const fs::path& file : files) {
    models->push_back({files.size() == 1 ? name : name + "/" + ModelNameOf(file.string()), file.string()});
  }
}

}  // namespace

std::string ModelNameOf(const std::string& path) {
  fs::path p(path);
  if (!p.has_filename()) p = p.parent_path();
  return p.extension() == ".gguf" ? GgufModelName(path) : p.filename().string();
}

std::vector<CatalogEntry> ListModels(const std::string& cache_folder) {
  std::vector<CatalogEntry> models;
  std::error_code error;
  for (const fs::path& path : SortedEntries(fs::path(cache_folder) / "models")) {
    if (fs::is_directory(path, error)) {
      AddFolder(path, &models);
    } else if (IsGgufModel(path)) {
      models.push_back({ModelNameOf(path.string()), path.string()});
    }
  }
  for (CatalogEntry& model : models) model.is_default = model.name == kDefaultModelName;
  return models;
}

Result<std::string> ResolveModel(const std::string& name_or_path, const std::string& cache_folder) {
  const std::string name = name_or_path.empty() ? std::string(kDefaultModelName) : name_or_path;
  const std::vector<CatalogEntry> models = ListModels(cache_folder);
  for (const CatalogEntry& model : models) {
    if (model.name == name) return model.path;
  }
  std::error_code error;
  if (!name_or_path.empty() && fs::exists(name_or_path, error)) return name_or_path;

  std::string message = name_or_path.empty() ? "the default model " + name + " is not in " + cache_folder + "/models"
                                             : "there is no file, folder or known model '" + name + "'";
  std::string known;
  for (const CatalogEntry& model : models) known += (known.empty() ? "" : ", ") + model.name;
  message += known.empty() ? "; no models are installed" : "; installed: " + known;
  message +=
      ". scripts/serve.sh gets the default model; or give the path of a .gguf file or of a Hugging Face folder, or a "
      "model to download "
      "(hf:org/name)";
  return NotFound(message, "model");
}

}  // namespace tactus::compute
