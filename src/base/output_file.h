// Output files for results: unwritable ones are detected before the work, and a file is never partly replaced. Caller's
// thread.
#pragma once

#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "base/unfinished_file.h"
#include "tactus/status.h"

namespace tactus {

// Whether `path` can be written. An existing file stays unchanged; missing parent folders are created. kDataLoss with
// the reason and `option`, the flag that set the path.
Status CheckWritable(const std::string& path, const char* option);

// kInvalidArgument: two of the outputs ({flag, path}; an empty path means no output) are one file, so the later would
// replace the earlier.
Status CheckApart(std::initializer_list<std::pair<const char*, std::string>> outputs);

// Writes `text` to a temporary file and renames it, so that `path` has all of its old text or all of the new text. A
// path that is not a regular file (a pipe, /dev/stdout) is written in place. kDataLoss: not written; `path` is
// unchanged.
Status ReplaceFile(const std::string& path, const std::string& text, const char* option);

// The same for output in pieces: write to file(), then Commit(). Without Commit() `path` is unchanged.
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
