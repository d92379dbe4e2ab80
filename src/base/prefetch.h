// Asks for a line of memory that will be read or written soon.
#pragma once

namespace tactus {

// GCC takes a function that only prefetches for one without any effect, and drops calls to it that it has not inlined
// before it finds that out. The empty statement is an effect, of no instructions.
inline void Prefetch(const void* at) {
  __builtin_prefetch(at);
  asm volatile("");
}

}  // namespace tactus
