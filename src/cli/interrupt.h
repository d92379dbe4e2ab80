// Ctrl-C for commands that do long work: the first one asks to stop, the second one stops the process at once.
#pragma once

namespace tactus::cli {

// Installs the SIGINT handler. Idempotent.
void CatchInterrupt();
// How often Ctrl-C came since the last ClearInterrupt. Async-signal-safe counter; any thread.
int InterruptCount();
void ClearInterrupt();

}  // namespace tactus::cli
