// The input of a job: a regular file of lines, read once from start to end to find where they lie, and then line by
// line in any order. At most one line is in memory, and no line that is too long. A gzipped file is unpacked into an
// unnamed file, which is deleted with the object: lines are places in its content.
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

// Where and how far a gzipped input is unpacked.
struct UnpackRoom {
  std::string folder;      // empty: the system's folder for temporary files
  int64_t most_bytes = 0;  // of the content; 0: any
};

class JobInput {
 public:
  // False: stop; the call returns kCancelled.
  using Progress = std::function<bool(int64_t bytes)>;
  // kNotFound: no such file. kInvalidArgument: not a regular file, which could not be read again, or one that may not
  // be opened, or gzipped and damaged or too large. kUnavailable: try again later.
  static Result<std::unique_ptr<JobInput>> Open(const std::string& path, const UnpackRoom& room = {},
                                                const Progress& progress = {});
  ~JobInput();
  JobInput(const JobInput&) = delete;
  JobInput& operator=(const JobInput&) = delete;

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }

  // Called for each line in order; `text` is empty for lines longer than most_bytes. A line feed at the end of the file
  // begins no line.
  using OnLine = std::function<Status(LinePlace place, std::string_view text)>;
  // Returns the hash of the whole content.
  Result<std::string> Scan(int64_t most_bytes, const OnLine& on_line, const Progress& progress) const;
  Result<std::string> Hash(const Progress& progress) const;

  Result<std::string> Read(const LinePlace& place) const;
  // The file was written to or cut since it was opened.
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
  int fd_ = -1;         // of the content
  int packed_fd_ = -1;  // of the gzipped file, if any
  int64_t bytes_ = 0;
  Written opened_;
};

}  // namespace tactus::offline
