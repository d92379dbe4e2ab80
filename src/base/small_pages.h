// Memory that is used sparsely: huge pages would make all of it resident at the first touches.
#pragma once

#include <cstddef>

#include <sys/mman.h>

#include "base/huge_pages.h"

namespace tactus {

// Takes back the advice of MapHugePages for the untouched memory of a HugePageAllocator. Only advice to the system.
template <class T>
void AvoidHugePages([[maybe_unused]] T* data, [[maybe_unused]] size_t count) {
#ifdef MADV_NOHUGEPAGE
  if (HugePageAllocator<T>::Maps(count)) (void)madvise(data, count * sizeof(T), MADV_NOHUGEPAGE);
#endif
}

}  // namespace tactus
