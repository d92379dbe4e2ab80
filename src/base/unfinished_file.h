// Temporary files that will replace others. A signal that ends the process at once also removes them, so that no
// incomplete file is left. Any thread.
#pragma once

#include <string>

namespace tactus {

// During its lifetime the file is unfinished. No effect if too many are open, or the path is very long: such a file is
// left behind, as after `kill -9`.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(const std::string& path);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

 private:
  int slot_ = -1;
};

// Removes all of them. For a signal handler, before _exit.
void RemoveUnfinishedFiles();

}  // namespace tactus
