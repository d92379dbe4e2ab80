// Files that a user names and the program reads once, from start to end: regular files, pipes, devices, standard input.
// Every read has a limit, because /dev/zero has no end; a pipe without a writer gives an error after a time-out,
// because its writer may have died. One thread per object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/gunzip.h"
#include "tactus/status.h"

namespace tactus {

inline constexpr int32_t kInputWaitMs = 30'000;  // time-out for the next byte of a pipe

class InputFile {
 public:
  // kNotFound: no such file. kInvalidArgument: a folder, or not readable.
  static Result<InputFile> Open(const std::string& path, int64_t limit_bytes, int32_t wait_ms = kInputWaitMs);
  // Waits without time-out.
  static InputFile StandardInput(int64_t limit_bytes);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  // If the input is gzipped, later reads return its unpacked content, under the same limit. Call before the first read.
  // Errors as ReadAll; also kDataLoss, here and later: damaged input.
  Status Unpack();
  // The rest of the file. kTooLarge names file and limit; kDeadlineExceeded: no byte arrived for `wait_ms`; kCancelled:
  // a signal arrived.
  Result<std::string> ReadAll();
  // The next `most_bytes`, fewer only at the end. Errors as ReadAll.
  Result<std::string> ReadSome(size_t most_bytes);
  // The next line without its '
  // '; false: no line is left. Errors as ReadAll; also kTooLarge for a line beyond `line_limit_bytes`.
  Result<bool> ReadLine(std::string* line, int64_t line_limit_bytes);

 private:
  InputFile(std::string name, int fd, bool owned, int64_t limit_bytes, int32_t wait_ms);
  // Appends input to buffer_; false at the end.
  Result<bool> Fill();
  Result<bool> FillPacked();
  Result<bool> FillUnpacked();
  Status TooLarge() const;
  std::string name_;
  int fd_ = -1;
  bool owned_ = false;
  int64_t limit_bytes_ = 0, read_bytes_ = 0, line_ = 0;
  int32_t wait_ms_ = 0;  // below 0: no time-out
  std::string buffer_;
  size_t at_ = 0;  // consumed bytes of buffer_
  std::optional<Gunzip> gunzip_;
  std::string packed_;       // bytes of a gzipped file
  size_t packed_at_ = 0;     // unpacked bytes of packed_
  bool packed_end_ = false;  // the gzipped file has ended
  int64_t unpacked_bytes_ = 0;
};

// Whether Open would find a readable file; does not open it, since a pipe can be opened only once. Errors as Open.
Status CheckReadable(const std::string& path);

// The content of a small file.
Result<std::string> ReadInputFile(const std::string& path, int64_t limit_bytes, int32_t wait_ms = kInputWaitMs);

}  // namespace tactus
