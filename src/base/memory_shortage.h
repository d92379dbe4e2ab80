// What a process that serves does when an allocation fails. A thread that works for one request gets std::bad_alloc,
// and that request ends. A thread that all requests depend on waits until other threads have given memory back: half a
// change of its state could not be undone.
#pragma once

#include <new>

#include "base/clock.h"

namespace tactus {

// For a process that serves, once: from here on threads that say so (NeedsMemory) wait for memory, and 8 MiB of address
// space are kept that the first of them gets. Installs a new-handler; other threads get std::bad_alloc as before.
void WaitForMemoryWhereNeeded(Clock& clock);

// Ends the process with status 1 and a line on stderr, for a thread that all requests depend on and that has waited in
// vain. Allocates nothing.
[[noreturn]] void EndForWantOfMemory() noexcept;

// Keeps those 8 MiB again, where they were given away and can be had. Any thread, from time to time.
void KeepMemoryInReserve() noexcept;

// While this lives, the calling thread waits for memory, 10 s at most for one allocation. It must hold no lock that
// a thread needs to give memory back.
class NeedsMemory {
 public:
  explicit NeedsMemory(bool needs = true);  // false: for a part that must not wait, as it holds such a lock
  ~NeedsMemory();
  NeedsMemory(const NeedsMemory&) = delete;
  NeedsMemory& operator=(const NeedsMemory&) = delete;

 private:
  const bool outer_;
};

// Runs `work` so, and ends the process where an allocation has waited in vain.
template <class Work>
void RunNeedingMemory(const Work& work) {
  const NeedsMemory needs_memory;
  try {
    work();
  } catch (const std::bad_alloc&) {  // half of a change of its state is done
    EndForWantOfMemory();
  }
}

}  // namespace tactus
