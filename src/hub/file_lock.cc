#include "hub/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace tactus::hub {

Result<std::unique_ptr<FileLock>> FileLock::Try(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
  if (fd < 0) return DataLoss("cannot make the lock file " + path + ": " + std::strerror(errno));
  std::unique_ptr<FileLock> lock(new FileLock(fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::unique_ptr<FileLock>();
    return lock;  // a file system without locks: the hash still protects the file
  }
  // Another process may have removed the file before the lock was taken: such a lock excludes nothing.
  struct stat held = {}, named = {};
  if (fstat(fd, &held) != 0 || stat(path.c_str(), &named) != 0 || held.st_ino != named.st_ino)
    return std::unique_ptr<FileLock>();
  return lock;
}

FileLock::~FileLock() {
  close(fd_);
}

}  // namespace tactus::hub
