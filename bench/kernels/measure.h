// What the benchmarks of operators share: a clock and memory as the executor has it.
#pragma once

#include <sys/mman.h>
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace tactus::bench {

// Seconds; `cpu`: of this thread's own running, which neighbours on the machine do not lengthen.
inline double Now(bool cpu) {
  timespec t;
  clock_gettime(cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Memory in huge pages where there are any, every byte `fill`.
struct Mapping {
  explicit Mapping(int64_t n, int fill = 0) : bytes(static_cast<size_t>(n)) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    data = static_cast<std::byte*>(memory);
    if (fill != 0) std::memset(data, fill, bytes);
  }
  ~Mapping() { munmap(data, bytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  size_t bytes;
  std::byte* data;
};

}  // namespace tactus::bench
