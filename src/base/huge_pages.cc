#include "base/huge_pages.h"

#include <cstdint>

#include <sys/mman.h>

namespace tactus {
namespace {

size_t RoundUp(size_t bytes) {
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

}  // namespace

std::byte* MapHugePages(size_t bytes) {
  // A mapping is only aligned to small pages, so map one huge page more, and unmap the rest around the aligned part.
  const size_t size = RoundUp(bytes);
  void* data = mmap(nullptr, size + kHugePageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(data);
  const size_t before = RoundUp(reinterpret_cast<uintptr_t>(begin)) - reinterpret_cast<uintptr_t>(begin);
  std::byte* aligned = begin + before;
  if (before > 0) munmap(begin, before);
  if (before < kHugePageBytes) munmap(aligned + size, kHugePageBytes - before);
#ifdef MADV_HUGEPAGE
  (void)madvise(aligned, size, MADV_HUGEPAGE);
#endif
  return aligned;
}

void UnmapHugePages(std::byte* data, size_t bytes) {
  munmap(data, RoundUp(bytes));
}

}  // namespace tactus
