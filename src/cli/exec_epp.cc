// `tactus epp` is a program of its own, tactus-epp, beside this one: loading gRPC takes every other command longer than
// its own work does.
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "cli/commands.h"

namespace tactus::cli {

int EppCommand(const Args& args) {
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  std::string program = length > 0 ? std::string(self, static_cast<size_t>(length)) : "tactus";
  program += "-epp";
  std::vector<char*> argv = {program.data()};
  Args copy = args;
  for (std::string& arg : copy) argv.push_back(arg.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  if (errno == ENOENT) {
    std::fprintf(stderr,
                 "tactus epp: there is no %s: build the target tactus-epp too; where gRPC was missing, install "
                 "libgrpc++-dev, protobuf-compiler-grpc and libprotobuf-dev first and configure again\n",
                 program.c_str());
  } else {
    std::fprintf(stderr, "tactus epp: cannot start %s: %s\n", program.c_str(), std::strerror(errno));
  }
  return kExitFailed;
}

}  // namespace tactus::cli
