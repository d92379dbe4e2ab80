// Prefetches a cache line that will be read or written soon.
#pragma once

namespace tactus {

// GCC treats a function that only prefetches as having no effect, and drops calls to it that are not inlined early. The
// empty asm statement counts as an effect and has no instructions.
inline void Prefetch(const void* at) {
  __builtin_prefetch(at);
  asm volatile("");
}

}  // namespace tactus
