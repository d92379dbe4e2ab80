// The input of a job: a regular file of lines, read from start to end to learn where they lie, and then line by line in
// any order. Never more of it than one line is in memory, nor of a line that is too long. A gzipped file is unpacked
// into one without a name, which ends with the object: lines are places in its content.
//
// Thread rule: Scan, Hash and Changed on one thread at a time; Read on any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "offline/job/job_store.h"
#include "tactus/status.h"

namespace tactus::offline {

// Where a gzipped input is unpacked.
struct UnpackRoom {
  std::string folder;      // empty: the system's for temporary files
  int64_t most_bytes = 0;  // of the content; 0: any
};

class JobInput {
 public:
  // False: stop, which ends in kCancelled.
  using Progress = std::function<bool(int64_t bytes)>;
  // kNotFound: no such file. kInvalidArgument: no regular file, which could not be read again, or one that may not be
  // opened, or gzipped and damaged or too large. kUnavailable: try again later.
  static Result<std::unique_ptr<JobInput>> Open(const std::string& path, const UnpackRoom& room = {},
                                                const Progress& progress = {});
  ~JobInput();
  JobInput(const JobInput&) = delete;
  JobInput& operator=(const JobInput&) = delete;

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }

  // Each line in order; `text` is empty of those beyond most_bytes. A line feed at the end of the file begins no line.
  using OnLine = std::function<Status(LinePlace place, std::string_view text)>;
  // Returns the hash of the whole content.
  Result<std::string> Scan(int64_t most_bytes, const OnLine& on_line, const Progress& progress) const;
  Result<std::string> Hash(const Progress& progress) const;

  Result<std::string> Read(const LinePlace& place) const;
  // It was written to, or cut, since it was opened.
  bool Changed() const;

 private:
  struct Written {
    int64_t bytes = 0, s = 0, ns = 0;
    bool operator==(const Written&) const = default;
  };
  explicit JobInput(std::string path) : path_(std::move(path)) {}
  Status Unpack(const UnpackRoom& room, const Progress& progress);
  Result<std::string> Pieces(const std::function<Status(std::string_view piece)>& on_piece,
                             const Progress& progress) const;
  Result<size_t> ReadAt(int64_t offset, char* data, size_t bytes) const;
  Result<size_t> ReadFrom(int fd, int64_t offset, char* data, size_t bytes) const;
  Written LastWritten() const;

  const std::string path_;
  int fd_ = -1;         // of what is read
  int packed_fd_ = -1;  // of the file itself, where it is gzipped
  int64_t bytes_ = 0;
  Written opened_;
};

}  // namespace tactus::offline
