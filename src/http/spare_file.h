// A reserved descriptor: a listener without free descriptors closes it to accept one client and refuse it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace tactus::http {

class SpareFile {
 public:
  SpareFile() { Take(); }
  ~SpareFile() { Give(); }
  SpareFile(const SpareFile&) = delete;
  SpareFile& operator=(const SpareFile&) = delete;

  void Take() {
    if (file_ < 0) file_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  // Closes the descriptor. False: there was none, because the last Take failed.
  bool Give() {
    if (file_ < 0) return false;
    close(std::exchange(file_, -1));
    return true;
  }

 private:
  int file_ = -1;
};

}  // namespace tactus::http
