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
  std::string refusal = {};                 // how the errors begin that are about `args` or `input`

  static constexpr const char* kInput = "/proc/self/fd/3";
};

// What it printed to stdout. kInvalidArgument: it exited with status 1 or 2, and the last line of its stderr, which is
// the message, begins with `refusal`. kInternal: it failed otherwise. kUnavailable: there is no such program.
// kDeadlineExceeded: it was ended after a limit. kCancelled: `stop` became true; it is called a few times a second.
// The environment is empty, so that no TACTUS_* of this process applies.
Result<std::string> RunChild(const ChildRun& run, Clock& clock, const std::function<bool()>& stop);

}  // namespace tactus::serve
