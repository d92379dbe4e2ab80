// A lock between processes on a file, as huggingface_hub takes it (flock), so that both tools wait for each other.
#pragma once

#include <memory>
#include <string>

#include "tactus/status.h"

namespace tactus::hub {

class FileLock {
 public:
  // Makes missing folders and the file, and takes the lock without waiting. Null: another holds it. kDataLoss: the file
  // cannot be made.
  static Result<std::unique_ptr<FileLock>> Try(const std::string& path);
  ~FileLock();  // frees the lock; the file stays
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace tactus::hub
