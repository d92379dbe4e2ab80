#include "offline/plan/allocated_bytes.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
namespace tactus::testing {
int64_t PeakBytes() {
  return -1;
}
void ForgetPeakBytes() {}
}  // namespace tactus::testing
#else
namespace {
std::atomic<int64_t> g_held{0}, g_peak{0};
}

namespace tactus::testing {
int64_t PeakBytes() {
  return g_peak.load();
}
void ForgetPeakBytes() {
  g_peak = g_held.load();
}
}  // namespace tactus::testing

void* operator new(size_t size) {
  void* p = std::malloc(size);
  if (p == nullptr) throw std::bad_alloc();
  const int64_t held = g_held += static_cast<int64_t>(malloc_usable_size(p));
  if (held > g_peak) g_peak = held;
  return p;
}
void operator delete(void* p) noexcept {
  if (p != nullptr) g_held -= static_cast<int64_t>(malloc_usable_size(p));
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  operator delete(p);
}
#endif
