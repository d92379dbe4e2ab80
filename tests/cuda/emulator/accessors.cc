#include "accessors.h"

#include <fmt/format.h>

namespace tactus::compute::cuda::emulator {

void ReportBounds(const Allocation* a, bool writes, int64_t index, int64_t elements, const Where& where) {
  const char* kind = writes ? "write out of bounds" : "read out of bounds";
  if (a == nullptr) return Report(kind, where, "the accessor has no memory");
  const char* freed = a->bytes == 0 ? ", which was freed" : "";
  Report(kind, where, fmt::format("element {} of {} of {}{}", index, elements, a->name, freed));
}

void ReportSharedBounds(bool writes, int64_t index, int64_t elements, const Where& where) {
  Report(writes ? "write out of bounds" : "read out of bounds", where,
         fmt::format("element {} of {} of shared memory", index, elements));
}

void ReportAlignment(int64_t bytes, const Where& where) {
  Report("misaligned access", where, fmt::format("the address is no multiple of {}", bytes));
}

std::mutex& AtomicMutex(const void* address) {
  static std::mutex mutexes[16];
  return mutexes[reinterpret_cast<uintptr_t>(address) / 64 % 16];
}

}  // namespace tactus::compute::cuda::emulator
