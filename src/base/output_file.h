// Files that a result is written to: found unwritable before the work, and never half replaced. Caller's thread.
#pragma once

#include <string>

#include "tactus/status.h"

namespace tactus {

// Can `path` be written? What lies there stays as it is; folders above it are made. kDataLoss with the reason, naming
// `option`, the flag that says where.
Status CheckWritable(const std::string& path, const char* option);

// Writes `text` beside `path` and renames, so that `path` has all of its old text or all of the new one. What is no
// regular file (a pipe, /dev/stdout) is written in place. kDataLoss: not written; `path` is as it was.
Status ReplaceFile(const std::string& path, const std::string& text, const char* option);

}  // namespace tactus
