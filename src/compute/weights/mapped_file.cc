#include "compute/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "compute/weights/sigbus_guard.h"

namespace tactus::compute {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// O_NONBLOCK: opening a FIFO must not wait for its writer.
Result<int64_t> OpenRegular(const std::string& path, Descriptor* file) {
  file->fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->fd < 0) {
    const std::string reason = path + ": " + std::strerror(errno);
    return errno == ENOENT || errno == ENOTDIR ? NotFound(reason) : InvalidArgument("cannot open " + reason);
  }
  struct stat info{};
  if (fstat(file->fd, &info) != 0) return InvalidArgument("cannot stat " + path + ": " + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path + " is not a regular file");
  return static_cast<int64_t>(info.st_size);
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  Descriptor file;
  TACTUS_ASSIGN_OR_RETURN(const int64_t size, OpenRegular(path, &file));
  if (size == 0) return DataLoss(path + " is empty");
  void* data = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) {
    return Status(StatusCode::kResourceExhausted,
                  "cannot map " + path + " (" + std::to_string(size) + " bytes): " + std::strerror(errno));
  }
  std::shared_ptr<MappedFile> mapped(new MappedFile());
  mapped->path_ = path;
  mapped->data_ = static_cast<const std::byte*>(data);
  mapped->size_ = static_cast<size_t>(size);
  mapped->guard_slot_ = RegisterMappedRange(data, static_cast<size_t>(size), path.c_str());
  return std::shared_ptr<const MappedFile>(std::move(mapped));
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  UnregisterMappedRange(guard_slot_);
  munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::string> ReadSmallFile(const std::string& path, int64_t limit_bytes) {
  Descriptor file;
  TACTUS_ASSIGN_OR_RETURN(const int64_t size, OpenRegular(path, &file));
  if (size > limit_bytes) {
    return Status(StatusCode::kTooLarge,
                  path + " has " + std::to_string(size) + " bytes; the limit is " + std::to_string(limit_bytes));
  }
  std::string text(static_cast<size_t>(size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = read(file.fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return InvalidArgument("cannot read " + path + ": " + std::strerror(errno));
    if (n == 0) return DataLoss(path + " became shorter while it was read");
    done += static_cast<size_t>(n);
  }
  return text;
}

}  // namespace tactus::compute
