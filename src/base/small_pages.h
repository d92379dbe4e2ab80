// Memory that is used sparsely: huge pages would make all of it resident at the first touches.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/mman.h>

#include "base/huge_pages.h"

namespace tactus {

// Takes back the advice of MapHugePages for memory that has not been touched. Only advice to the system.
inline void AvoidHugePages([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#ifdef MADV_NOHUGEPAGE
  // Smaller memory is not mapped by itself and has no such advice. A mapping of MapHugePages begins at a huge page.
  if (bytes < kHugePageBytes / 2 || reinterpret_cast<uintptr_t>(data) % kHugePageBytes != 0) return;
  (void)madvise(data, (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes, MADV_NOHUGEPAGE);
#endif
}

}  // namespace tactus
