#include "offline/job/result_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace tactus::offline {
namespace {

Status CannotWrite(const std::string& path, int error) {
  return DataLoss(fmt::format("cannot write '{}': {}", path, std::strerror(error)));
}

// Syncs the folder, which makes a new file's name durable.
void SyncFolderOf(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);
  close(fd);
}

}  // namespace

ResultFile::ResultFile(ResultFile&& other) noexcept {
  *this = std::move(other);
}
ResultFile& ResultFile::operator=(ResultFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
ResultFile::~ResultFile() {
  if (fd_ >= 0) close(fd_);
}

Result<ResultFile> ResultFile::Open(const std::string& path, int64_t recorded_bytes) {
  ResultFile file;
  file.path_ = path;
  const bool may_be_new = recorded_bytes == 0;
  file.fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC | (may_be_new ? O_CREAT : 0), 0666);
  if (file.fd_ < 0 && errno == ENOENT && !may_be_new) {
    return DataLoss(
        fmt::format("'{}' is missing but the job has recorded {} bytes of results in it; restore it, or start again "
                    "with --overwrite",
                    path, recorded_bytes));
  }
  if (file.fd_ < 0) return CannotWrite(path, errno);
  struct stat info{};
  if (fstat(file.fd_, &info) != 0) return CannotWrite(path, errno);
  if (info.st_size < recorded_bytes) {
    return DataLoss(
        fmt::format("'{}' has {} bytes but the job has recorded {} in it: it was truncated; restore it, or start "
                    "again with --overwrite",
                    path, info.st_size, recorded_bytes));
  }
  if (ftruncate(file.fd_, recorded_bytes) != 0) return CannotWrite(path, errno);
  if (fsync(file.fd_) != 0) return CannotWrite(path, errno);
  if (may_be_new) SyncFolderOf(path);
  file.bytes_ = recorded_bytes;
  return file;
}

Status ResultFile::Write(std::string_view text) const {
  int64_t at = bytes_;
  while (!text.empty()) {
    const ssize_t n = pwrite(fd_, text.data(), text.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return CannotWrite(path_, errno);
    at += n;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return fdatasync(fd_) == 0 ? Status() : CannotWrite(path_, errno);
}

Status ResultFile::Append(std::string_view text) {
  if (text.empty()) return Status();
  const Status status = Write(text);
  if (status.ok())
    bytes_ += static_cast<int64_t>(text.size());
  else
    CutTo(bytes_);
  return status;
}

void ResultFile::CutTo(int64_t bytes) {
  bytes_ = bytes;
  // If this fails too, the next run cuts the file.
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return;
}

}  // namespace tactus::offline
