// Where the program keeps what it fetched or made, as scripts/ do.
#pragma once

#include <string>

namespace tactus {

// $TACTUS_CACHE_DIR, else $XDG_CACHE_HOME/tactus, else ~/.cache/tactus.
std::string CacheFolder();

}  // namespace tactus
