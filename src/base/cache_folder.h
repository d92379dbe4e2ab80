// The folder for downloaded and generated files; scripts/ use the same.
#pragma once

#include <string>

namespace tactus {

// $TACTUS_CACHE_DIR, else $XDG_CACHE_HOME/tactus, else ~/.cache/tactus.
std::string CacheFolder();

}  // namespace tactus
