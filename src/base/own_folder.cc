#include "base/own_folder.h"

#include <dlfcn.h>

#include <filesystem>
#include <string_view>
#include <system_error>

namespace tactus {

std::string OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) return {};
  // The main program's name is the one it was started as, which may be a name on PATH.
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path file = std::string_view(info.dli_fname).find('/') == std::string_view::npos
                            ? fs::read_symlink("/proc/self/exe", error)
                            : fs::canonical(info.dli_fname, error);
  return error ? std::string() : file.parent_path().string();
}

}  // namespace tactus
