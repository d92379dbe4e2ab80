#include "cli/commands/model_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <vector>

#include "base/json.h"
#include "base/json_text.h"
#include "cli/options/args.h"
#include "compute/model/catalog.h"
#include "hub/cached_models.h"
#include "hub/remote_name.h"
#include "hub/settings.h"
#include "hub/size_text.h"

namespace tactus::cli {
namespace {

namespace fs = std::filesystem;

struct StoredModel {
  hub::CachedModel model;  // its commit is empty: of the catalogue
  bool is_default = false;
};

std::vector<StoredModel> StoredModels(const hub::Settings& settings) {
  std::vector<StoredModel> models;
  for (const compute::CatalogEntry& entry : compute::ListModels()) {
    const char* format = entry.path.ends_with(".gguf") ? "gguf" : "safetensors";
    models.push_back({{entry.name, "", format, entry.path, hub::UseOf(entry.path)}, entry.is_default});
  }
  for (hub::CachedModel& model : hub::ListCached(settings)) models.push_back({std::move(model), false});
  return models;
}

std::string DateText(int64_t unix_s) {
  const auto time = static_cast<time_t>(unix_s);
  tm date = {};
  char text[16] = "";
  if (unix_s > 0 && gmtime_r(&time, &date) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d", &date);
  return text;
}

// File names may be invalid UTF-8; invalid bytes are replaced.
void PrintJson(const std::vector<StoredModel>& models, const hub::Settings& settings) {
  Json out = {{"cache", CacheFolder()}, {"hub_cache", settings.cache}, {"models", SortedJson::array()}};
  for (const auto& [model, is_default] : models) {
    out["models"].push_back({{"name", model.name},
                             {"path", model.path},
                             {"default", is_default},
                             {"revision", model.commit.empty() ? Json(nullptr) : Json(model.commit)},
                             {"format", model.format},
                             {"size_bytes", model.use.bytes},
                             {"last_used", model.use.last_used_s}});
  }
  std::printf("%s\n", json_text::JsonText(out).c_str());
}

void PrintTable(const std::vector<StoredModel>& models) {
  constexpr size_t kShownDigits = 12;
  size_t width = 24;
  for (const StoredModel& m : models) width = std::max(width, m.model.name.size());
  for (const auto& [model, is_default] : models) {
    std::printf("%-*s %-12s %-11s %9s  %-10s %s%s\n", static_cast<int>(width), model.name.c_str(),
                model.commit.empty() ? "-" : model.commit.substr(0, kShownDigits).c_str(), model.format.c_str(),
                hub::SizeText(model.use.bytes).c_str(), DateText(model.use.last_used_s).c_str(), model.path.c_str(),
                is_default ? "  (default)" : "");
  }
}

// Removes a model of the catalogue: its file, and its folder if nothing else is in it.
Result<int64_t> RemoveCatalogued(const compute::CatalogEntry& entry) {
  const int64_t bytes = hub::UseOf(entry.path).bytes;
  std::error_code error;
  fs::remove_all(entry.path, error);
  if (error) return DataLoss(fmt::format("cannot remove {}: {}", entry.path, error.message()));
  const fs::path folder = fs::path(entry.path).parent_path();
  if (folder != fs::path(CacheFolder()) / "models") fs::remove(folder, error);  // fails if it is not empty
  return bytes;
}

Result<int64_t> Remove(const std::string& name) {
  for (const compute::CatalogEntry& entry : compute::ListModels()) {
    if (entry.name == name) return RemoveCatalogued(entry);
  }
  TACTUS_ASSIGN_OR_RETURN(const hub::Settings settings, hub::SettingsFrom(hub::ProcessEnvironment));
  TACTUS_ASSIGN_OR_RETURN(const auto remote, hub::ParseRemoteName(name, settings.endpoint));
  if (remote) return hub::RemoveCached(*remote, settings);
  return NotFound(fmt::format("there is no model '{}'; `tactus models list` shows the names", name));
}

}  // namespace

int ListModels(bool json) {
  const auto settings = hub::SettingsFrom(hub::ProcessEnvironment);
  if (!settings.ok()) {
    std::fprintf(stderr, "tactus models list: %s\n", settings.status().message().c_str());
    return kExitUsage;
  }
  const std::vector<StoredModel> models = StoredModels(*settings);
  if (json) {
    PrintJson(models, *settings);
    return kExitOk;
  }
  PrintTable(models);
  if (models.empty()) {
    std::fprintf(stderr,
                 "no models under %s/models and %s; scripts/get_default_model.sh fetches the default one, "
                 "`tactus pull` any other\n",
                 CacheFolder().c_str(), settings->cache.c_str());
  }
  return kExitOk;
}

int RemoveModel(const std::string& name) {
  if (name.empty()) {
    std::fprintf(stderr, "tactus models rm: MODEL is missing; `tactus models list` shows the names\n");
    return kExitUsage;
  }
  const auto freed = Remove(name);
  if (!freed.ok()) {
    std::fprintf(stderr, "tactus models rm: %s\n", freed.status().message().c_str());
    return freed.status().code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
  }
  std::printf("%s: removed, %s freed\n", name.c_str(), hub::SizeText(*freed).c_str());
  return kExitOk;
}

}  // namespace tactus::cli
