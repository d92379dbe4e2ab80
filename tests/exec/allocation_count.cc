#include "exec/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
[[maybe_unused]] std::atomic<int64_t> g_allocations{0};
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
namespace tactus::test {
int64_t AllocationCount() {
  return -1;
}
}  // namespace tactus::test
#else
namespace tactus::test {
int64_t AllocationCount() {
  return g_allocations.load();
}
}  // namespace tactus::test

void* operator new(size_t size) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
#endif
