#include "offline/server/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/json_text.h"
#include "base/printable.h"

namespace tactus::offline {
namespace {

constexpr size_t kMostNameBytes = 255;

Status CannotStore(int error) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    return Status(StatusCode::kResourceExhausted,
                  "no space is left on the disk of --files-dir; delete files, or free space there");
  }
  return Internal(fmt::format("the file cannot be stored: {}", std::strerror(error)));
}

bool SyncFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool synced = fsync(fd) == 0;
  close(fd);
  return synced;
}

}  // namespace

std::string FileName(std::string_view given) {
  if (const size_t slash = given.find_last_of("/\\"); slash != std::string_view::npos) given.remove_prefix(slash + 1);
  std::string name = json_text::ReplaceInvalidUtf8(given.substr(0, kMostNameBytes));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '_');
  // Replacing a character that was cut in the middle can lengthen the name.
  while (name.size() > kMostNameBytes) {
    do name.pop_back();
    while (!name.empty() && (static_cast<unsigned char>(name.back()) & 0xC0u) == 0x80u);
  }
  return name.empty() || name == "." || name == ".." ? "file" : name;
}

Files::Files(Store* store, FileLimits limits, UnixClock clock)
    : store_(*store), limits_(limits), clock_(std::move(clock)) {}

Status Files::CountStored() {
  TACTUS_ASSIGN_OR_RETURN(const std::vector<Store::Usage> usages, store_.Usages());
  std::lock_guard lock(mutex_);
  for (const Store::Usage& u : usages) {
    held_[u.owner] = {u.files, 0, u.bytes, 0};
    all_.files += u.files;
    all_.bytes += u.bytes;
  }
  return Status();
}

Status Files::CheckRoom(const Held& own, int64_t bytes) const {
  if (own.files + own.drafts > limits_.owner_files) {
    return Status(StatusCode::kTooLarge,
                  fmt::format("this client has {} files, the limit; delete some", limits_.owner_files), "file");
  }
  if (own.bytes + own.writing_bytes + bytes > limits_.owner_bytes) {
    return Status(StatusCode::kTooLarge,
                  fmt::format("the files of this client would have more than {} bytes, the limit (--files-quota); "
                              "delete some",
                              limits_.owner_bytes),
                  "file");
  }
  if (all_.bytes + all_.writing_bytes + bytes > limits_.all_bytes) {
    return Status(
        StatusCode::kTooLarge,
        fmt::format("all files together would have more than {} bytes, the limit (--files-quota)", limits_.all_bytes),
        "file");
  }
  return Status();
}

Status Files::CheckRoomForResults(const std::string& owner) {
  std::lock_guard lock(mutex_);
  Held with_result = held_[owner];
  ++with_result.drafts;
  return CheckRoom(with_result, 1);
}

Status Files::Take(const std::string& owner, int64_t bytes) {
  std::lock_guard lock(mutex_);
  Held& own = held_[owner];
  TACTUS_RETURN_IF_ERROR(CheckRoom(own, bytes));
  own.writing_bytes += bytes;
  all_.writing_bytes += bytes;
  return Status();
}

void Files::GiveBack(const std::string& owner, int64_t bytes) {
  std::lock_guard lock(mutex_);
  Held& own = held_[owner];
  --own.drafts;
  own.writing_bytes -= bytes;
  all_.writing_bytes -= bytes;
}

void Files::Count(const FileRow& result) {
  std::lock_guard lock(mutex_);
  for (Held* held : {&held_[result.owner], &all_}) {
    ++held->files;
    held->bytes += result.bytes;
  }
}

void Files::Forget(const FileRow& file) {
  std::lock_guard lock(mutex_);
  for (Held* held : {&held_[file.owner], &all_}) {
    --held->files;
    held->bytes -= file.bytes;
  }
}

Files::Stats Files::stats() const {
  std::lock_guard lock(mutex_);
  return {all_.files, all_.bytes, all_.writing_bytes};
}

Result<std::unique_ptr<Files::Draft>> Files::Begin(const std::string& owner, int64_t announced_bytes) {
  struct statvfs disk{};
  if (statvfs(store_.folder().c_str(), &disk) == 0 &&
      static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize) < static_cast<double>(announced_bytes))
    return CannotStore(ENOSPC);
  TACTUS_ASSIGN_OR_RETURN(std::string id, NewId("file-"));
  {
    std::lock_guard lock(mutex_);
    Held& own = held_[owner];
    ++own.drafts;
    const Status room = CheckRoom(own, announced_bytes);
    if (!room.ok()) --own.drafts;
    TACTUS_RETURN_IF_ERROR(room);
  }
  std::unique_ptr<Draft> draft(new Draft(this, owner, std::move(id)));
  draft->fd_ = open(draft->path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (draft->fd_ < 0) return CannotStore(errno);
  return draft;
}

Files::Draft::Draft(Files* files, std::string owner, std::string id)
    : files_(*files), owner_(std::move(owner)), id_(std::move(id)), path_(files->store_.UploadPath(id_)) {}

Files::Draft::~Draft() {
  if (fd_ >= 0) {
    close(fd_);
    unlink(path_.c_str());  // no such file if it was finished
  }
  files_.GiveBack(owner_, bytes_);
}

Status Files::Draft::Write(std::string_view bytes) {
  if (bytes_ + static_cast<int64_t>(bytes.size()) > files_.limits_.file_bytes) {
    return Status(
        StatusCode::kTooLarge,
        fmt::format("the file is larger than {} bytes, the limit (--max-file-size)", files_.limits_.file_bytes),
        "file");
  }
  TACTUS_RETURN_IF_ERROR(files_.Take(owner_, static_cast<int64_t>(bytes.size())));
  bytes_ += static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t n = write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return CannotStore(errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return Status();
}

Result<FileRow> Files::Draft::Finish(std::string_view name, int64_t live_s) {
  if (fdatasync(fd_) != 0) return CannotStore(errno);
  FileRow row{id_, owner_, FileName(name), kInputPurpose, bytes_, files_.clock_(), 0};
  if (live_s > 0) row.expires_s = row.created_s + live_s;
  const std::string path = files_.store_.FilePath(id_);
  if (rename(path_.c_str(), path.c_str()) != 0) return CannotStore(errno);
  Status added = SyncFolder(files_.store_.FilePath("")) ? Status() : CannotStore(errno);
  if (added.ok()) added = files_.store_.AddFile(row);
  if (!added.ok()) {
    unlink(path.c_str());
    return added.code() == StatusCode::kDataLoss ? CannotStore(ENOSPC) : added;
  }
  files_.Count(row);
  return row;
}

Status Files::Delete(const std::string& owner, const std::string& id) {
  TACTUS_ASSIGN_OR_RETURN(const std::optional<FileRow> deleted, store_.DeleteFile(owner, id));
  if (!deleted) return NotFound(fmt::format("there is no file '{}'", Printable(id)), "file_id");
  Forget(*deleted);
  return Status();
}

void Files::DeleteExpired() {
  const auto expired = store_.ExpiredFiles(clock_());
  if (!expired.ok()) return;  // tried again at the next sweep
  for (const FileRow& file : *expired) (void)Delete(file.owner, file.id);
}

}  // namespace tactus::offline
