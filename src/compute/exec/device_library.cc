#include "compute/exec/device_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>

#include "base/own_folder.h"

namespace tactus::compute {
namespace {

namespace fs = std::filesystem;

Result<const DeviceLibrary*> Load(const std::string& path) {
  // Stays loaded: a backend may live until the end of the process.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Internal(fmt::format("'{}' cannot be loaded ({})", path, dlerror()));
  auto* function = reinterpret_cast<DeviceLibraryFunction*>(dlsym(library, kDeviceLibrarySymbol));
  if (function == nullptr) {
    dlclose(library);
    return Internal(fmt::format("'{}' is no device library of Tactus: it has no {}", path, kDeviceLibrarySymbol));
  }
  const DeviceLibrary* found = function();
  if (const std::string version = found->version; version != DeviceLibraryVersion()) {
    dlclose(library);
    return Internal(fmt::format("'{}' is of another build ({}) than this program ({}): build both together", path,
                                version, DeviceLibraryVersion()));
  }
  return found;
}

}  // namespace

std::vector<std::string> DeviceLibraryPaths() {
  std::vector<std::string> paths;
  if (const char* given = std::getenv("TACTUS_CUDA_LIBRARY"); given != nullptr && *given != '\0') {
    if (std::string_view(given) != "none") paths.push_back(given);
    return paths;
  }
  if (const fs::path own = OwnFolder(); !own.empty()) {
    // A build folder; an installation from bin/ or lib/, and from a multiarch folder below lib/.
    for (const char* place : {".", "../lib/tactus", "../tactus", "../lib"}) {
      paths.push_back((own / place / kDeviceLibraryFile).lexically_normal().string());
    }
  }
  return paths;
}

Result<const DeviceLibrary*> LoadDeviceLibrary(const std::vector<std::string>& paths) {
  static std::mutex mutex;
  static std::map<std::string, const DeviceLibrary*> loaded;  // by path
  const std::lock_guard lock(mutex);
  for (const std::string& path : paths) {
    if (const auto found = loaded.find(path); found != loaded.end()) return found->second;
    std::error_code error;
    if (!fs::is_regular_file(path, error)) continue;
    TACTUS_ASSIGN_OR_RETURN(const DeviceLibrary* library, Load(path));
    loaded[path] = library;
    return library;
  }
  return Status(StatusCode::kUnavailable,
                fmt::format("the library of the CUDA backend is not there: a build with nvcc makes {}, and the "
                            "environment variable TACTUS_CUDA_LIBRARY names another place (looked for: {})",
                            kDeviceLibraryFile, fmt::join(paths, ", ")));
}

}  // namespace tactus::compute
