// A read-only mapping of a whole file. Owns the mapping, not the descriptor (closed after mapping). Immutable: any
// thread. Each live mapping is registered with the SIGBUS guard by its path (compute/weights/sigbus_guard.h), because a
// file that shrinks under a mapping faults at the next read.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tactus/status.h"

namespace tactus::compute {

class MappedFile {
 public:
  // kNotFound: no such file; kInvalidArgument: not a regular file, or not readable; kDataLoss: empty.
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int guard_slot_ = -1;
};

// The contents of a small text file; kTooLarge beyond `limit_bytes`.
Result<std::string> ReadSmallFile(const std::string& path, int64_t limit_bytes);

}  // namespace tactus::compute
