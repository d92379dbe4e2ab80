// Counts the bytes held by a library loaded at run time: its calls of malloc and related functions are redirected
// through counters. llguidance's interface reports no sizes, and its states grow with answers. Internal to grammar/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "language/grammar/reserve_heap.h"

namespace tactus::language {

// Redirects the library's calls of malloc, calloc, realloc, posix_memalign and free through counters, once, before
// other threads use it. `function`: any of its functions. False: this system stores a library's calls in another form,
// and nothing is counted. `reserve`, which outlives the library, serves calls for which malloc has no memory; null:
// they fail.
bool CountHeapOf(const void* function, ReserveHeap* reserve = nullptr);

// Whether a library uses its reserve, so that its users must end. Any thread.
bool HeapIsShort();

// Whether malloc can provide this many bytes now and no library has used its reserve. Any thread.
bool HeapHas(size_t bytes);

// During its lifetime, *bytes grows by what the calling thread's calls of counted libraries allocate, and shrinks by
// what they free. The innermost charge counts.
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
