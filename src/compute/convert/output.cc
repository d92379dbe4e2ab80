#include "compute/convert/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace tactus::compute {
namespace {

namespace fs = std::filesystem;

Status WriteError(const std::string& path, int error, int64_t bytes) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    std::error_code ignored;
    const fs::space_info space = fs::space(fs::path(path).parent_path(), ignored);
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{} bytes for {} do not fit: the disk has {} left ({})", bytes, path,
                              ignored ? 0 : space.available, std::strerror(error)));
  }
  return DataLoss(fmt::format("cannot write {}: {}", path, std::strerror(error)));
}

// So that a rename survives a power cut.
void SyncFolder(const std::string& folder) {
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);
  (void)close(fd);
}

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

Result<std::unique_ptr<NewFile>> NewFile::Create(const std::string& path, int64_t bytes) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return WriteError(path, errno, bytes);
  std::unique_ptr<NewFile> file(new NewFile(path, fd));
  // File systems that cannot reserve report a full disk at a write.
  if (bytes > 0 && fallocate(fd, 0, 0, bytes) != 0) {
    if (errno != EOPNOTSUPP && errno != ENOSYS) return WriteError(path, errno, bytes);
    if (ftruncate(fd, bytes) != 0) return WriteError(path, errno, bytes);
  }
  return file;
}

NewFile::~NewFile() {
  if (fd_ >= 0) (void)close(fd_);
  if (!kept_) (void)unlink(path_.c_str());
}

Status NewFile::Write(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return WriteError(path_, n < 0 ? errno : EIO, static_cast<int64_t>(bytes.size()));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += n;
  }
  return Status();
}

Status NewFile::Close() {
  if (fd_ < 0) return Status();
  const int synced = fsync(fd_), error = errno;
  (void)close(std::exchange(fd_, -1));
  return synced == 0 ? Status() : WriteError(path_, error, 0);
}

Result<std::unique_ptr<NewOutput>> NewOutput::Create(const std::string& out, bool folder, bool overwrite) {
  const std::string path = WithoutSlash(out);
  std::error_code error;
  if (fs::exists(path, error)) {
    if (!overwrite) return InvalidArgument(fmt::format("{} exists; --overwrite replaces it", path), "OUT");
    if (fs::is_directory(path, error) != folder) {
      return InvalidArgument(fmt::format("{} is {}, and a {} would be written; name another OUT", path,
                                         folder ? "a file" : "a folder", folder ? "folder" : "file"),
                             "OUT");
    }
    if (folder && !fs::exists(path + "/config.json", error)) {
      return InvalidArgument(
          fmt::format("{} is a folder without config.json, so no model: it is not replaced; name another OUT", path),
          "OUT");
    }
  }
  const std::string parent = fs::path(path).parent_path().string();
  if (!fs::is_directory(parent.empty() ? "." : parent, error))
    return InvalidArgument(fmt::format("the folder {} for {} does not exist; create it first", parent, path), "OUT");
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  if (folder && !fs::create_directory(temporary, error) && error)
    return DataLoss(fmt::format("cannot create {}: {}", temporary, error.message()));
  return std::unique_ptr<NewOutput>(new NewOutput(path, temporary, folder));
}

NewOutput::~NewOutput() {
  files_.clear();
  std::error_code ignored;
  if (folder_ && !finished_) fs::remove_all(temporary_, ignored);
}

Result<NewFile*> NewOutput::Add(const std::string& name, int64_t bytes) {
  TACTUS_ASSIGN_OR_RETURN(auto file, NewFile::Create(name.empty() ? temporary_ : temporary_ + "/" + name, bytes));
  files_.push_back(std::move(file));
  return files_.back().get();
}

Status NewOutput::AddText(const std::string& name, const std::string& text) {
  std::error_code error;
  fs::create_directories(fs::path(temporary_ + "/" + name).parent_path(), error);
  TACTUS_ASSIGN_OR_RETURN(NewFile* const file, Add(name, 0));
  return file->Write(0, std::as_bytes(std::span(text.data(), text.size())));
}

Status NewOutput::Finish() {
  for (const auto& file : files_) TACTUS_RETURN_IF_ERROR(file->Close());
  std::error_code error;
  const std::string old = temporary_ + ".old";
  const bool replaces_folder = folder_ && fs::exists(out_, error);
  if (replaces_folder) fs::rename(out_, old, error);
  if (!error) fs::rename(temporary_, out_, error);
  if (error) return DataLoss(fmt::format("cannot rename {} to {}: {}", temporary_, out_, error.message()));
  for (const auto& file : files_) file->Keep();
  finished_ = true;
  if (replaces_folder) fs::remove_all(old, error);
  SyncFolder(fs::path(out_).parent_path().string());
  return Status();
}

}  // namespace tactus::compute
