// A file that is being downloaded in pieces, and the record beside it of what has arrived, with which a later process
// continues. The record is written after the data that it counts, so it never counts too much. One thread per object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tactus/status.h"

namespace tactus::hub {

class PartialFile {
 public:
  struct Piece {
    int64_t begin = 0, bytes = 0;  // bytes -1: to the end, which is not known
    int64_t done = 0;
    bool complete() const { return done == bytes; }
  };

  // Opens or makes `path`. A record of the same size is continued; of another one, everything is dropped. `bytes` -1:
  // not known. kDataLoss: the file cannot be made or is too large for its disk or limits.
  static Result<PartialFile> Open(const std::string& path, int64_t bytes, int connections);
  PartialFile(PartialFile&& other) noexcept;
  PartialFile& operator=(PartialFile&&) = delete;
  ~PartialFile();

  std::vector<Piece>& pieces() { return pieces_; }
  int64_t bytes() const { return bytes_; }
  int64_t done() const;
  bool complete() const;
  bool continued() const { return continued_; }  // has bytes of an earlier process
  // The server's ETag of the bytes so far, for If-Range; empty: none.
  const std::string& validator() const { return validator_; }
  void set_validator(std::string validator) { validator_ = std::move(validator); }

  // Adds to a piece. kResourceExhausted: the disk is full; kDataLoss: another error.
  Status Write(size_t piece, std::string_view data);
  // The end of a file whose size was not known.
  void EndAt(int64_t bytes);
  // Drops everything: one piece, of the whole file.
  Status Restart();
  // Bytes at the beginning without a gap, and their content.
  int64_t Contiguous() const;
  Result<size_t> Read(int64_t at, char* data, size_t size) const;
  // Writes the record. A failure is not reported: the older record counts less.
  void Save() const;
  // Gives the complete file its name, and removes the record. kDataLoss: cannot be renamed.
  Status MoveTo(const std::string& path);
  void Remove();

 private:
  PartialFile(std::string path, int fd, int64_t bytes) : path_(std::move(path)), fd_(fd), bytes_(bytes) {}
  std::string RecordPath() const { return path_ + ".json"; }
  void Divide(int connections);
  bool TakeRecord();
  Status WriteError(const char* what, int64_t at) const;

  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = -1;
  bool continued_ = false;
  std::string validator_;
  std::vector<Piece> pieces_;
};

}  // namespace tactus::hub
