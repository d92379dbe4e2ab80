// How many bytes a library holds that was loaded at run time: its calls of malloc and its kin are led through counters.
// llguidance's interface does not say how large anything is, and its states grow as answers go. Internal to grammar/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "language/grammar/reserve_heap.h"

namespace tactus::language {

// Leads the library's calls of malloc, calloc, realloc, posix_memalign and free through counters, once, before it is
// used on any other thread. `function`: any of its functions. False: this system keeps a library's calls in another
// form, and nothing is counted. `reserve`, which outlives the library, serves calls for which malloc has no memory;
// null: they fail.
bool CountHeapOf(const void* function, ReserveHeap* reserve = nullptr);

// Whether a library lives on its reserve, so that what asks it for more has to end. Any thread.
bool HeapIsShort();

// Whether malloc has this many bytes at the moment, and no library has had to take of its reserve. Any thread.
bool HeapHas(size_t bytes);

// While this lives, *bytes grows by what the calling thread's calls of counted libraries allocate, and shrinks by what
// they free. The innermost one counts.
class HeapCharge {
 public:
  explicit HeapCharge(int64_t* bytes);
  ~HeapCharge();
  HeapCharge(const HeapCharge&) = delete;
  HeapCharge& operator=(const HeapCharge&) = delete;

 private:
  int64_t* const outer_;
};

}  // namespace tactus::language
