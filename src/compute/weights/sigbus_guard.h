// Names the file when a mapped weights file shrinks under a running process. The library only keeps the table of mapped
// ranges; a program (serve, run) installs the handler.
//
// Thread rule: all functions may be called from any thread. The handler itself only reads the table and calls
// write(2) and _exit(2), which are async-signal-safe.
#pragma once

#include <cstddef>

namespace tactus::compute {

// Index of the entry, or -1 when the table (1024 files) is full: such a mapping is not named in the message.
int RegisterMappedRange(const void* data, size_t size, const char* path);
void UnregisterMappedRange(int slot);

// On SIGBUS inside a registered range: writes "tactus: weights file PATH shrank or became unreadable" to stderr and
// ends the process with status 1. Elsewhere: the default action. Idempotent.
void InstallSigbusGuard();

}  // namespace tactus::compute
