#include "cli/options/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace tactus::cli {

void OpenStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() returns the lowest free number, which is `fd`: those below it are already open.
    const int opened = open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    if (opened != fd) _exit(1);
  }
}

bool FinishStandardOutput() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  const int why = errno;
  if (flushed && std::ferror(stdout) == 0 && std::cout.good()) return true;
  std::fprintf(stderr, "tactus: cannot write to standard output%s%s; the result is not complete\n",
               why != 0 ? ": " : "", why != 0 ? std::strerror(why) : "");
  return false;
}

}  // namespace tactus::cli
