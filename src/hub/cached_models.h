// The models in the hub's cache: what is there, and its removal. Reads the file system on each call; no state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hub/remote_name.h"
#include "hub/settings.h"
#include "tactus/status.h"

namespace tactus::hub {

struct FileUse {
  int64_t bytes = 0;
  int64_t last_used_s = 0;  // seconds since 1970; file systems may note only the first use of a day
};
// A file, or the files below a folder.
FileUse UseOf(const std::string& path);

struct CachedModel {
  std::string name;  // as commands accept it
  std::string commit;
  std::string format;  // "safetensors", "gguf"; "incomplete": weights are missing; "other": no model that can be loaded
  std::string path;    // to load
  FileUse use;
};
// By name.
std::vector<CachedModel> ListCached(const Settings& settings);

// Removes a model and the contents that no other revision uses. A repository without revision and selector is removed
// whole, also what is left of interrupted downloads. Returns the bytes that became free. kNotFound: it is not in the
// cache. kUnavailable: another process is downloading files of the repository.
Result<int64_t> RemoveCached(const RemoteName& name, const Settings& settings);

}  // namespace tactus::hub
