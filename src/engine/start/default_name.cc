#include "engine/start/default_name.h"

#include <filesystem>

#include "compute/model/catalog.h"

namespace tactus::engine {

std::string DefaultServedName(const std::string& asked, const std::string& path) {
  for (const compute::CatalogEntry& entry : compute::ListModels()) {
    if (entry.name == asked || entry.path == path) return entry.name;
  }
  const std::filesystem::path p(path);
  if (p.filename() == "config.json" || p.filename().empty()) return p.parent_path().filename().string();
  return compute::ModelNameOf(path);
}

}  // namespace tactus::engine
