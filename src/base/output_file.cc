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

// The target of a chain of links, so that a rename replaces the file and not a link to it.
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

// Renames the temporary file `beside` to `target`, with the permissions that `target` had.
Status PutInPlace(const fs::path& beside, const fs::path& target, const std::string& path, const char* option) {
  std::error_code error;
  if (const auto there = fs::status(target, error); !error && fs::exists(there))
    fs::permissions(beside, there.permissions(), error);
  error.clear();
  fs::rename(beside, target, error);
  return error ? CannotWrite(path, option, error.message()) : Status();
}

bool WrittenInPlace(const fs::path& target) {
  std::error_code error;
  return fs::exists(target, error) && !fs::is_regular_file(target, error);
}

fs::path Beside(const fs::path& target) {
  return target.string() + fmt::format(".{}.tmp", getpid());
}

}  // namespace

Status CheckApart(std::initializer_list<std::pair<const char*, std::string>> outputs) {
  for (const auto* later = outputs.begin(); later != outputs.end(); ++later) {
    if (later->second.empty() || WrittenInPlace(Target(later->second))) continue;
    for (const auto* earlier = outputs.begin(); earlier != later; ++earlier) {
      if (earlier->second.empty() || Target(earlier->second) != Target(later->second)) continue;
      return InvalidArgument(fmt::format("--{} and --{} are one file, '{}': name another for one of them",
                                         earlier->first, later->first, later->second),
                             later->first);
    }
  }
  return Status();
}

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
  if (WrittenInPlace(target)) return WriteText(target, text, option);
  const fs::path beside = Beside(target);
  const UnfinishedFile unfinished(beside.string());
  Status status = WriteText(beside, text, option);
  if (status.ok()) status = PutInPlace(beside, target, path, option);
  if (!status.ok()) fs::remove(beside, error);
  return status;
}

Result<FileReplacement> FileReplacement::Open(const std::string& path, const char* option) {
  FileReplacement replacement;
  replacement.path_ = path;
  replacement.option_ = option;
  const fs::path target = Target(path);
  if (!WrittenInPlace(target)) replacement.beside_ = Beside(target).string();
  const std::string& written = replacement.beside_.empty() ? path : replacement.beside_;
  errno = 0;
  if (!replacement.beside_.empty()) replacement.unfinished_ = std::make_unique<UnfinishedFile>(replacement.beside_);
  replacement.file_.reset(std::fopen(written.c_str(), "wbe"));
  if (replacement.file_ == nullptr) {
    replacement.beside_.clear();
    return CannotWrite(path, option, std::strerror(errno));
  }
  return replacement;
}

Status FileReplacement::Commit() {
  const bool failed = std::ferror(file_.get()) != 0;
  errno = 0;
  if (std::fclose(file_.release()) != 0 || failed)
    return CannotWrite(path_, option_, errno != 0 ? std::strerror(errno) : "input/output error");
  if (beside_.empty()) return Status();
  TACTUS_RETURN_IF_ERROR(PutInPlace(beside_, Target(path_), path_, option_));
  beside_.clear();
  unfinished_.reset();
  return Status();
}

FileReplacement::~FileReplacement() {
  std::error_code error;
  if (!beside_.empty()) fs::remove(beside_, error);
}

}  // namespace tactus
