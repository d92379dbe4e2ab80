// How a serving process handles failed allocations. A thread that works for one request gets std::bad_alloc, and that
// request ends. A thread that all requests depend on waits until other threads have freed memory, because a
// half-finished change of its state could not be undone.
#pragma once

#include <cstdint>
#include <new>

#include "base/clock.h"

namespace tactus {

// Call first in a program, before it has threads. Each arena of malloc reserves 64 MiB of address space, and there may
// be eight for each core. If the address space is limited (ulimit -v), they are limited to ArenasWithin the limit:
// otherwise the reservations alone can use it up, and no large allocation succeeds any more.
void LimitArenas();
// One for each GiB, at least one.
int ArenasWithin(uint64_t address_space_bytes);

// Call once in a serving process: from then on threads with a NeedsMemory wait for memory. It reserves 8 MiB of address
// space, which are released at the first shortage. Installs a new-handler; other threads get std::bad_alloc as before.
void WaitForMemoryWhereNeeded(Clock& clock);

// Ends the process with status 1 and a line on stderr, after a thread that all requests depend on has waited in vain.
// Allocates nothing.
[[noreturn]] void EndForWantOfMemory() noexcept;

// Reserves the 8 MiB again if they were released and are available. Any thread; call periodically.
void KeepMemoryInReserve() noexcept;

// During its lifetime the calling thread waits for memory, at most 10 s for one allocation. It must hold no lock that
// another thread needs to free memory.
class NeedsMemory {
 public:
  explicit NeedsMemory(bool needs = true);  // false: for a part that must not wait, since it holds such a lock
  ~NeedsMemory();
  NeedsMemory(const NeedsMemory&) = delete;
  NeedsMemory& operator=(const NeedsMemory&) = delete;

 private:
  const bool outer_;
};

// Runs `work` with NeedsMemory, and ends the process if an allocation has waited in vain.
template <class Work>
void RunNeedingMemory(const Work& work) {
  const NeedsMemory needs_memory;
  try {
    work();
  } catch (const std::bad_alloc&) {  // a change of its state may be half-finished
    EndForWantOfMemory();
  }
}

}  // namespace tactus
