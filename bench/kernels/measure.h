// Shared by the benchmarks of operators: a clock, and memory like the executor's.
#pragma once

#include <sys/mman.h>
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace tactus::bench {

// Seconds; `cpu`: CPU time of this thread, independent of other load on the machine.
inline double Now(bool cpu) {
  timespec t;
  clock_gettime(cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Memory in huge pages where available, every byte set to `fill`.
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
