// Signals that ask a command to stop. While it loads there is nothing to end in order: a signal ends the process at
// once, with a line and an exit status. Commands that do long work then count Ctrl-C: the first one asks to stop, a
// later one stops the process at once.
#pragma once

namespace tactus::cli {

// From now on SIGINT, SIGTERM and SIGHUP end the process: "tactus COMMAND: stopped by ...", unfinished files are
// removed (base/unfinished_file.h), exit status `status`. A signal that is ignored stays so. `command` lives on. The
// first act of a program, and again where it knows its command; signals that HoldSignals kept come now.
void EndOnSignals(const char* command, int status);
// The three wait, also through exec, until EndOnSignals or ReleaseSignals.
void HoldSignals();
void ReleaseSignals();

// From now on Ctrl-C is counted. The `last`th since the last ClearInterrupt stops the process. SIGHUP counts as the
// first one, however often it comes, unless it is ignored (nohup). SIGTERM ends the process as if nothing were there.
// Idempotent.
void CatchInterrupt(int last = 2);
// SIGTERM counts as Ctrl-C, for a command that cluster managers run; before CatchInterrupt.
void CatchTermination();
// How often Ctrl-C came since the last ClearInterrupt. Async-signal-safe counter; any thread.
int InterruptCount();
void ClearInterrupt();

// A load in the midst of work that counts Ctrl-C. While it lives a signal ends the process as EndOnSignals has it, and
// so does one that came before. One at a time.
class Loading {
 public:
  Loading();
  ~Loading();
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;
};

// Waits until `fd` can be read or has ended; false: Ctrl-C came since the last ClearInterrupt, or another signal now. A
// read alone would miss the Ctrl-C that comes just before it. One thread at a time, behind CatchInterrupt.
bool WaitForInput(int fd);

}  // namespace tactus::cli
