// A descriptor that is kept to be given up in need: without one a listener cannot even tell a client that there is
// none.
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
  // False: it could not be had back.
  bool Give() {
    if (file_ < 0) return false;
    close(std::exchange(file_, -1));
    return true;
  }

 private:
  int file_ = -1;
};

}  // namespace tactus::http
