// Output of conversions: a file or a folder that gets its name once it is complete. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/unfinished_file.h"
#include "tactus/status.h"

namespace tactus::compute {

// A file under a temporary name. Without Close() and a rename by its owner it is removed.
class NewFile {
 public:
  // Reserves `bytes`. kResourceExhausted: the disk has less left. kDataLoss: it cannot be written.
  static Result<std::unique_ptr<NewFile>> Create(const std::string& path, int64_t bytes);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // kResourceExhausted: the disk is full. kDataLoss: another error.
  Status Write(int64_t offset, std::span<const std::byte> bytes);
  // Until the data are on the disk.
  Status Close();
  void Keep() { kept_ = true; }
  const std::string& path() const { return path_; }

 private:
  NewFile(std::string path, int fd) : path_(std::move(path)), fd_(fd), unfinished_(path_) {}

  const std::string path_;
  int fd_;
  bool kept_ = false;
  UnfinishedFile unfinished_;
};

// Where a conversion writes: OUT's temporary name beside it, and the move to OUT at the end.
class NewOutput {
 public:
  // kInvalidArgument: OUT exists and `overwrite` is false, or the folder that shall have it does not exist or cannot be
  // written.
  static Result<std::unique_ptr<NewOutput>> Create(const std::string& out, bool folder, bool overwrite);
  ~NewOutput();
  NewOutput(const NewOutput&) = delete;
  NewOutput& operator=(const NewOutput&) = delete;

  const std::string& temporary() const { return temporary_; }
  // A file of the folder, or the file itself (`name` empty).
  Result<NewFile*> Add(const std::string& name, int64_t bytes);
  // A whole small file of the folder.
  Status AddText(const std::string& name, const std::string& text);
  // Closes all files and gives the output its name.
  Status Finish();

 private:
  NewOutput(std::string out, std::string temporary, bool folder)
      : out_(std::move(out)), temporary_(std::move(temporary)), folder_(folder) {}

  const std::string out_, temporary_;
  const bool folder_;
  bool finished_ = false;
  std::vector<std::unique_ptr<NewFile>> files_;
};

}  // namespace tactus::compute
