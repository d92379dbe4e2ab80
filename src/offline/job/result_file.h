// A file of results, one per line, that only grows at its end; text that was written but not recorded is cut off.
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
  // Creates the file if it is missing and nothing is recorded of it; cuts it to `recorded_bytes`. kDataLoss: it has
  // fewer bytes, or cannot be written.
  static Result<ResultFile> Open(const std::string& path, int64_t recorded_bytes);
  ResultFile() = default;
  ResultFile(ResultFile&& other) noexcept;
  ResultFile& operator=(ResultFile&& other) noexcept;
  ~ResultFile();

  // On return the text is written and synced; after an error the file is unchanged.
  Status Append(std::string_view text);
  int64_t bytes() const { return bytes_; }
  const std::string& path() const { return path_; }
  // Removes the last Append, which was not recorded.
  void CutTo(int64_t bytes);

 private:
  Status Write(std::string_view text) const;

  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
};

}  // namespace tactus::offline
