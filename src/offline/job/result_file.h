// A file of results, one a line, that only grows at its end; what was written and not recorded is cut off again.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tactus/status.h"

namespace tactus::offline {

class ResultFile {
 public:
  // Makes it where it is absent and nothing is recorded of it, and cuts it to the bytes that are recorded. kDataLoss:
  // it has fewer, or cannot be written.
  static Result<ResultFile> Open(const std::string& path, int64_t recorded_bytes);
  ResultFile() = default;
  ResultFile(ResultFile&& other) noexcept;
  ResultFile& operator=(ResultFile&& other) noexcept;
  ~ResultFile();

  // Written and on the disk when it returns; after an error the file is as it was.
  Status Append(std::string_view text);
  int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  // Takes back the last Append, which was not recorded.
  void CutTo(int64_t bytes);

 private:
  Status Write(std::string_view text) const;

  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
};

}  // namespace tactus::offline
