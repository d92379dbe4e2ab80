// Files that are being written beside what they will replace. A process that a signal ends at once takes them with it,
// so that nothing half written is left. Any thread.
#pragma once

#include <string>

namespace tactus {

// While it lives the file is unfinished. It is of no effect where many are open at once, or the path is very long: such
// a file is left as `kill -9` leaves it.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(const std::string& path);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

 private:
  int slot_ = -1;
};

// Removes all of them. For a handler of signals, before _exit.
void RemoveUnfinishedFiles();

}  // namespace tactus
