#include "language/grammar/llguidance.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/cache_folder.h"
#include "base/own_folder.h"
#include "language/grammar/library_heap.h"

namespace tactus::language {
namespace {

// The library ends the process when an allocation fails. Compilations start only where there is room, and answers end
// once a quarter of this reserve is used (library_heap.h).
constexpr size_t kReserveBytes = size_t{16} << 20;

namespace fs = std::filesystem;

template <class Fn>
bool Find(void* library, const char* name, Fn** function) {
  *function = reinterpret_cast<Fn*>(dlsym(library, name));
  return *function != nullptr;
}

Status Damaged(const std::string& path, std::string_view what) {
  return DataLoss(
      fmt::format("'{}' {}; scripts/get_llguidance.sh fetches llguidance {}", path, what, kLlguidanceVersion));
}

Status Load(const std::string& path, LlgFunctions* f) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Damaged(path, fmt::format("cannot be loaded ({})", dlerror()));
  const bool complete = Find(library, "llg_get_version", &f->get_version) &&
                        Find(library, "llg_new_tokenizer_v2", &f->new_tokenizer_v2) &&
                        Find(library, "llg_free_tokenizer", &f->free_tokenizer) &&
                        Find(library, "llg_constraint_init_set_defaults", &f->constraint_init_set_defaults) &&
                        Find(library, "llg_new_matcher", &f->new_matcher) &&
                        Find(library, "llg_clone_matcher", &f->clone_matcher) &&
                        Find(library, "llg_free_matcher", &f->free_matcher) &&
                        Find(library, "llg_matcher_get_error", &f->matcher_get_error) &&
                        Find(library, "llg_matcher_is_error", &f->matcher_is_error) &&
                        Find(library, "llg_matcher_is_stopped", &f->matcher_is_stopped) &&
                        Find(library, "llg_matcher_compute_mask_into", &f->matcher_compute_mask_into) &&
                        Find(library, "llg_matcher_consume_token", &f->matcher_consume_token) &&
                        Find(library, "llg_matcher_validate_tokens", &f->matcher_validate_tokens) &&
                        Find(library, "llg_matcher_compute_ff_tokens", &f->matcher_compute_ff_tokens);
  if (!complete) {
    dlclose(library);
    return Damaged(path, "is not llguidance's library");
  }
  const std::string version = f->get_version();
  if (!version.starts_with(fmt::format("llguidance@{} ", kLlguidanceVersion))) {
    dlclose(library);
    return Damaged(path, fmt::format("is '{}'", version));
  }
  f->path = path;
  return Status();
}

}  // namespace

std::vector<std::string> LlguidancePaths() {
  if (const char* given = std::getenv("TACTUS_LLGUIDANCE"); given != nullptr && *given != '\0') return {given};
  std::vector<std::string> paths;
  if (const fs::path own = OwnFolder(); !own.empty()) {
    // From bin/ or lib/, and from a multiarch folder below lib/.
    for (const char* place : {"../lib/tactus", "../tactus"}) {
      paths.push_back((own / place / kLlguidanceFile).lexically_normal().string());
    }
  }
  paths.push_back(CacheFolder() + "/lib/" + kLlguidanceFile);
  return paths;
}

Result<LlgFunctions> OpenLlguidance(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) continue;
    LlgFunctions functions{};
    TACTUS_RETURN_IF_ERROR(Load(path, &functions));
    return functions;
  }
  return Unimplemented(
      fmt::format("structured output needs llguidance {}, which is not installed: run scripts/get_llguidance.sh, or "
                  "name its library "
                  "with the environment variable TACTUS_LLGUIDANCE (looked for: {})",
                  kLlguidanceVersion, fmt::join(paths, ", ")));
}

Result<const LlgFunctions*> LoadLlguidance() {
  static std::mutex mutex;
  static std::optional<LlgFunctions> loaded;
  const std::lock_guard lock(mutex);
  if (!loaded) {
    TACTUS_ASSIGN_OR_RETURN(LlgFunctions functions, OpenLlguidance(LlguidancePaths()));
    // Outlives every thread that calls the library.
    static ReserveHeap* const reserve = new ReserveHeap(kReserveBytes);
    if (!CountHeapOf(reinterpret_cast<const void*>(functions.get_version), reserve))
      return Damaged(functions.path, "allocates in a way that is not counted here");
    loaded = std::move(functions);
  }
  return &*loaded;
}

}  // namespace tactus::language
