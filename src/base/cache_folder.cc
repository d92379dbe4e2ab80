#include "base/cache_folder.h"

#include <cstdlib>

namespace tactus {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string CacheFolder() {
  if (const std::string own = Environment("TACTUS_CACHE_DIR"); !own.empty()) return own;
  if (const std::string xdg = Environment("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/tactus";
  const std::string home = Environment("HOME");
  return (home.empty() ? std::string(".") : home) + "/.cache/tactus";
}

}  // namespace tactus
