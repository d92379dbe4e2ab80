// Runs a program in a child process at a low priority and collects what it prints. Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tactus/status.h"

namespace tactus::serve {

struct ChildRun {
  std::string program;                      // a path
  std::vector<std::string> args;            // without the program's own name
  std::string input;                        // the child reads it as the file ChildRun::kInput
  int64_t cpu_s = 60;                       // of its CPU time: on a busy machine it may wait long for a core
  DurationNs limit_ns = 540 * kSecond;      // of time
  int64_t memory_bytes = int64_t{4} << 30;  // of address space
  bool negative_result = false;             // status 1 with something on stdout is a result too

  static constexpr const char* kInput = "/proc/self/fd/3";
};

// What it printed to stdout. kInvalidArgument: it exited with an error; the message is the last line of stderr.
// kDeadlineExceeded: it was ended after a limit. kCancelled: `stop` became true; it is called a few times a second.
// The environment is empty, so that no TACTUS_* of this process applies.
Result<std::string> RunChild(const ChildRun& run, Clock& clock, const std::function<bool()>& stop);

}  // namespace tactus::serve
