#include "base/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace tactus {
namespace {

namespace fs = std::filesystem;

Status CannotWrite(const std::string& path, const char* option, const std::string& why) {
  return DataLoss(fmt::format("cannot write --{} '{}': {}", option, path, why));
}

// Where a chain of links ends, so that a rename replaces the file and not the link to it.
fs::path Target(const std::string& path) {
  std::error_code error;
  const fs::path target = fs::weakly_canonical(path, error);
  return error ? fs::path(path) : target;
}

Status WriteText(const fs::path& path, const std::string& text, const char* option) {
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return out ? Status() : CannotWrite(path.string(), option, errno != 0 ? std::strerror(errno) : "input/output error");
}

}  // namespace

Status CheckWritable(const std::string& path, const char* option) {
  std::error_code error;
  if (fs::is_directory(path, error)) return CannotWrite(path, option, "it is a folder");
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  const bool there = fs::exists(path, error);
  if (there && !fs::is_regular_file(path, error)) {
    return access(path.c_str(), W_OK) == 0 ? Status() : CannotWrite(path, option, std::strerror(errno));
  }
  errno = 0;
  const bool opened = std::ofstream(path, std::ios::binary | std::ios::app).is_open();
  const int why = errno;
  if (opened && !there) fs::remove(path, error);
  return opened ? Status() : CannotWrite(path, option, std::strerror(why));
}

Status ReplaceFile(const std::string& path, const std::string& text, const char* option) {
  std::error_code error;
  const fs::path target = Target(path);
  if (fs::exists(target, error) && !fs::is_regular_file(target, error)) return WriteText(target, text, option);
  const fs::path beside = target.string() + fmt::format(".{}.tmp", getpid());
  Status status = WriteText(beside, text, option);
  if (status.ok()) {
    fs::rename(beside, target, error);
    if (error) status = CannotWrite(path, option, error.message());
  }
  if (!status.ok()) fs::remove(beside, error);
  return status;
}

}  // namespace tactus
