#include "cli/options/program.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/memory_shortage.h"
#include "cli/options/interrupt.h"
#include "cli/options/standard_streams.h"

namespace tactus::cli {
namespace {

// Replaces the process by the program of this name in the same folder. `missing`: what to do if it does not exist.
int ExecBeside(const char* suffix, const std::string& command, const Args& args, const char* missing) {
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  std::string program = length > 0 ? std::string(self, static_cast<size_t>(length)) : "tactus";
  program += suffix;
  std::vector<char*> argv = {program.data()};
  Args copy = args;
  for (std::string& arg : copy) argv.push_back(arg.data());
  argv.push_back(nullptr);
  HoldSignals();  // until the other program installs its handlers
  execv(program.c_str(), argv.data());
  const int why = errno;
  ReleaseSignals();
  if (why == ENOENT) {
    std::fprintf(stderr, "tactus %s: %s is missing: %s\n", command.c_str(), program.c_str(), missing);
  } else {
    std::fprintf(stderr, "tactus %s: cannot start %s: %s\n", command.c_str(), program.c_str(), std::strerror(why));
  }
  return kExitFailed;
}

// Turns an uncaught exception into a line and a failure status instead of an abort.
int RunOrFail(const std::function<int()>& main) {
  try {
    return main();
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "tactus: out of memory\n");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tactus: internal error: %s\n", e.what());
  }
  return kExitFailed;
}

}  // namespace

int RunProgram(const std::function<int()>& main) {
  LimitArenas();
  OpenStandardStreams();
  EndOnSignals("", kExitInterrupted);
  signal(SIGXFSZ, SIG_IGN);  // exceeding 'ulimit -f' becomes an error of the write
  const int code = RunOrFail(main);
  const bool written = FinishStandardOutput();
  return code == kExitOk && !written ? kExitFailed : code;
}

void BeginCommand(const char* name, bool serves) {
  EndOnSignals(name, serves ? kExitOk : kExitInterrupted);
}

int ExecTools(const Args& args) {
  return ExecBeside("-tools", args.front(), args,
                    "a first build makes only the server; run `scripts/build.sh release programs` to build the rest");
}

// A separate program, because loading gRPC takes longer than most other commands.
int ExecEpp(const Args& args) {
  return ExecBeside("-epp", "epp", args,
                    "run `scripts/build.sh release programs` to build it; if gRPC is missing, first install "
                    "libgrpc++-dev, protobuf-compiler-grpc and libprotobuf-dev and configure again");
}

}  // namespace tactus::cli
