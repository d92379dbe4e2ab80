// Files that a user names and the program reads once, from start to end: regular files, pipes, devices, standard input.
// Every reading has a limit, because /dev/zero has no end; a pipe without a writer is an error after a while,
// because its opener may be gone. One thread per object.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/gunzip.h"
#include "tactus/status.h"

namespace tactus {

inline constexpr int32_t kInputWaitMs = 30'000;  // for the next byte of a pipe

class InputFile {
 public:
  // kNotFound: no such file. kInvalidArgument: a folder, or not readable.
  static Result<InputFile> Open(const std::string& path, int64_t limit_bytes, int32_t wait_ms = kInputWaitMs);
  // Waits for as long as it takes.
  static InputFile StandardInput(int64_t limit_bytes);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  // Where what comes next is gzipped, its content is read from now on; the limit is of that too. Before anything else
  // is read. As ReadAll; also kDataLoss, here and later: it is damaged.
  Status Unpack();
  // Everything that is left. kTooLarge names file and limit; kDeadlineExceeded: nothing came for `wait_ms`; kCancelled:
  // a signal came.
  Result<std::string> ReadAll();
  // The next `most_bytes`, fewer at the end only. As ReadAll.
  Result<std::string> ReadSome(size_t most_bytes);
  // The next line without its '\n'; false: there is none. As ReadAll; also kTooLarge for a line beyond
  // `line_limit_bytes`.
  Result<bool> ReadLine(std::string* line, int64_t line_limit_bytes);

 private:
  InputFile(std::string name, int fd, bool owned, int64_t limit_bytes, int32_t wait_ms);
  // Reads on behind buffer_; false at the end.
  Result<bool> Fill();
  Result<bool> FillPacked();
  Result<bool> FillUnpacked();
  Status TooLarge() const;
  std::string name_;
  int fd_ = -1;
  bool owned_ = false;
  int64_t limit_bytes_ = 0, read_bytes_ = 0, line_ = 0;
  int32_t wait_ms_ = 0;  // below 0: for ever
  std::string buffer_;
  size_t at_ = 0;  // of buffer_: what was given out
  std::optional<Gunzip> gunzip_;
  std::string packed_;       // what was read of a gzipped file
  size_t packed_at_ = 0;     // of it: what is unpacked
  bool packed_end_ = false;  // there is no more of it
  int64_t unpacked_bytes_ = 0;
};

// Whether Open would find a file that it may read, without opening it, which a pipe stands only once. Errors as Open's.
Status CheckReadable(const std::string& path);

// The whole of a small file.
Result<std::string> ReadInputFile(const std::string& path, int64_t limit_bytes, int32_t wait_ms = kInputWaitMs);

}  // namespace tactus
