// Files that a result is written to: found unwritable before the work, and never half replaced. Caller's thread.
#pragma once

#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "base/unfinished_file.h"
#include "tactus/status.h"

namespace tactus {

// Can `path` be written? What lies there stays as it is; folders above it are made. kDataLoss with the reason, naming
// `option`, the flag that says where.
Status CheckWritable(const std::string& path, const char* option);

// kInvalidArgument: two of the outputs ({flag, path}, an empty path being none) are one file, and the later would
// replace the earlier.
Status CheckApart(std::initializer_list<std::pair<const char*, std::string>> outputs);

// Writes `text` beside `path` and renames, so that `path` has all of its old text or all of the new one. What is no
// regular file (a pipe, /dev/stdout) is written in place. kDataLoss: not written; `path` is as it was.
Status ReplaceFile(const std::string& path, const std::string& text, const char* option);

// The same for what is written piece by piece: to file(), then Commit(). Without that nothing has changed.
class FileReplacement {
 public:
  static Result<FileReplacement> Open(const std::string& path, const char* option);
  FileReplacement(FileReplacement&&) = default;
  FileReplacement& operator=(FileReplacement&&) = delete;
  ~FileReplacement();

  std::FILE* file() { return file_.get(); }
  Status Commit();

 private:
  FileReplacement() = default;
  std::string path_, beside_;  // beside_ empty: written in place
  const char* option_ = "";
  std::unique_ptr<UnfinishedFile> unfinished_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
};

}  // namespace tactus
