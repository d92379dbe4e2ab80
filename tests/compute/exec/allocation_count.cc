#include "compute/exec/allocation_count.h"

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
  for (;;) {
    if (void* p = std::malloc(size)) return p;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
#endif
