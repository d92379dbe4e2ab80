// Signals that stop a command. While a command loads there is nothing to finish: a signal ends the process at once,
// with a line and an exit status. Commands with long work then count Ctrl-C: the first one requests a stop, a later one
// ends the process at once.
#pragma once

namespace tactus::cli {

// From now on SIGINT, SIGTERM and SIGHUP end the process: prints "tactus COMMAND: stopped by ...", removes unfinished
// files (base/unfinished_file.h) and exits with `status`. Ignored signals stay ignored. `command` must live until exit.
// Called first in the program, and again once the command is known; delivers signals that HoldSignals blocked.
void EndOnSignals(const char* command, int status);
// Blocks the three signals, also across exec, until EndOnSignals or ReleaseSignals.
void HoldSignals();
void ReleaseSignals();

// From now on Ctrl-C is counted. The `last`th since the last ClearInterrupt ends the process. Any number of SIGHUP
// counts as one Ctrl-C, unless it is ignored (nohup). SIGTERM ends the process with its default action. Idempotent.
void CatchInterrupt(int last = 2);
// SIGTERM counts as Ctrl-C, for a command that cluster managers run; call before CatchInterrupt.
void CatchTermination();
// Number of Ctrl-C since the last ClearInterrupt. Async-signal-safe counter; any thread.
int InterruptCount();
void ClearInterrupt();

// A loading phase during work that counts Ctrl-C. While the object lives, a signal ends the process as in EndOnSignals,
// and so does an earlier one. One at a time.
class Loading {
 public:
  Loading();
  ~Loading();
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;
};

// Waits until `fd` is readable or at its end; false: Ctrl-C came since the last ClearInterrupt, or another signal now.
// A plain read would miss a Ctrl-C just before it. One thread at a time, after CatchInterrupt.
bool WaitForInput(int fd);

}  // namespace tactus::cli
