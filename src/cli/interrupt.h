// Ctrl-C for commands that do long work: the first one asks to stop, a later one stops the process at once.
#pragma once

namespace tactus::cli {

// Installs the SIGINT handler. The `last`th Ctrl-C since the last ClearInterrupt stops the process. SIGHUP counts as
// the first one, however often it comes, unless it is ignored (nohup). Idempotent.
void CatchInterrupt(int last = 2);
// SIGTERM counts as Ctrl-C, for a command that cluster managers run. Idempotent.
void CatchTermination();
// How often Ctrl-C came since the last ClearInterrupt. Async-signal-safe counter; any thread.
int InterruptCount();
void ClearInterrupt();
// Waits until `fd` can be read or has ended; false: Ctrl-C came since the last ClearInterrupt, or another signal now. A
// read alone would miss the Ctrl-C that comes just before it. One thread at a time, behind CatchInterrupt.
bool WaitForInput(int fd);

}  // namespace tactus::cli
