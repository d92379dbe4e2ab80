#include "memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/check.h"

namespace tactus::compute::cuda::emulator {
namespace {

constexpr int64_t kPage = 4096;

struct Pinned {
  int64_t bytes = 0;
  uint64_t serial = 0;
};
struct Registry {
  std::shared_mutex mutex;
  std::map<const char*, Allocation*> live;  // by address
  std::map<const char*, Pinned> pinned;
  std::vector<std::unique_ptr<Allocation>> all;
  int64_t bytes = 0;
};
Registry& TheRegistry() {
  static Registry* registry = new Registry;  // freed memory of static objects still finds it
  return *registry;
}
std::atomic<uint64_t> changes{1};  // of Registry::live
std::atomic<uint64_t> next_serial{2};

char* Map(int64_t bytes, int protection) {
  void* p = mmap(nullptr, static_cast<size_t>(bytes), protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TACTUS_CHECK_MSG(p != MAP_FAILED, "no address space for the emulated device's memory");
  return static_cast<char*>(p);
}

// A page lies between the addresses of two allocations.
int64_t Mapped(int64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage + kPage;
}

}  // namespace

Allocation* Allocate(int64_t bytes, const std::string& name) {
  auto made = std::make_unique<Allocation>();
  made->name = name;
  made->bytes = bytes;
  made->address = Map(Mapped(bytes), PROT_NONE);
  made->data = Map(Mapped(bytes), PROT_READ | PROT_WRITE);
  std::memset(made->data, 0xff, static_cast<size_t>(bytes));
  made->shadow = std::make_unique<Shadow>(Memory::kGlobal, Mapped(bytes));
  Registry& r = TheRegistry();
  const std::unique_lock lock(r.mutex);
  Allocation* a = r.all.emplace_back(std::move(made)).get();
  r.live[a->address] = a;
  r.bytes += bytes;
  ++changes;
  return a;
}

void Free(void* address) {
  Registry& r = TheRegistry();
  const std::unique_lock lock(r.mutex);
  const auto found = r.live.find(static_cast<const char*>(address));
  TACTUS_CHECK(found != r.live.end());
  Allocation* a = found->second;
  r.live.erase(found);
  r.bytes -= a->bytes;
  munmap(a->address, static_cast<size_t>(Mapped(a->bytes)));
  munmap(a->data, static_cast<size_t>(Mapped(a->bytes)));
  a->shadow.reset();
  a->bytes = 0;
  ++changes;
}

int64_t AllocatedBytes() {
  Registry& r = TheRegistry();
  const std::shared_lock lock(r.mutex);
  return r.bytes;
}

Allocation* FindAllocation(const void* address) {
  // Each thread keeps what it found, by page: a kernel's accessors take turns, and the lock is shared by all threads.
  constexpr size_t kKept = 64;
  thread_local std::array<Allocation*, kKept> kept = {};
  thread_local uint64_t kept_changes = 0;
  const char* p = static_cast<const char*>(address);
  const uint64_t now = changes.load(std::memory_order_relaxed);
  if (kept_changes != now) kept.fill(nullptr);
  kept_changes = now;
  Allocation*& last = kept[reinterpret_cast<uintptr_t>(p) / static_cast<uintptr_t>(kPage) % kKept];
  if (last != nullptr && p >= last->address && p <= last->address + last->bytes) return last;
  Registry& r = TheRegistry();
  const std::shared_lock lock(r.mutex);
  auto next = r.live.upper_bound(p);
  if (next == r.live.begin()) return nullptr;
  Allocation* a = std::prev(next)->second;
  if (p > a->address + a->bytes) return nullptr;
  return last = a;
}

std::optional<Range> FindRange(const void* address, int64_t bytes, const char* call) {
  Allocation* a = FindAllocation(address);
  if (a == nullptr) {
    ReportCall(call, fmt::format("{} is no address of the device", address));
    return std::nullopt;
  }
  const int64_t offset = static_cast<const char*>(address) - a->address;
  if (bytes < 0 || offset + bytes > a->bytes) {
    ReportCall(call, fmt::format("{} bytes from byte {} of {}, which has {}", bytes, offset, a->name, a->bytes));
    return std::nullopt;
  }
  return Range{a, offset, bytes};
}

void CheckOrder(const Range& range, bool writes, const char* call) {
  const char* const other = range.shadow().FindUnordered(range.offset, range.bytes, writes);
  if (other == nullptr) return;
  ReportCall("race between streams", fmt::format("{} {} {}, nothing orders it with {}", call,
                                                 writes ? "writes" : "reads", range.memory->name, other));
}
void ReadRange(const Range& range, Stamp stamp, const char* call) {
  CheckOrder(range, false, call);
  range.shadow().MarkRead(range.offset, range.bytes, stamp);
}
void WriteRange(const Range& range, Stamp stamp, const char* call) {
  CheckOrder(range, true, call);
  range.shadow().MarkWritten(range.offset, range.bytes, stamp);
}

void* AllocatePinned(int64_t bytes) {
  char* p = Map(Mapped(bytes), PROT_READ | PROT_WRITE);
  std::memset(p, 0xff, static_cast<size_t>(bytes));
  Registry& r = TheRegistry();
  const std::unique_lock lock(r.mutex);
  static uint64_t last_serial = 0;
  r.pinned[p] = {bytes, ++last_serial};
  return p;
}

void FreePinned(void* address) {
  Registry& r = TheRegistry();
  const std::unique_lock lock(r.mutex);
  const auto found = r.pinned.find(static_cast<const char*>(address));
  TACTUS_CHECK(found != r.pinned.end());
  munmap(address, static_cast<size_t>(Mapped(found->second.bytes)));
  r.pinned.erase(found);
}

bool IsPinned(const void* address, int64_t bytes) {
  return PinnedSerial(address, bytes) != 0;
}

uint64_t PinnedSerial(const void* address, int64_t bytes) {
  const char* p = static_cast<const char*>(address);
  Registry& r = TheRegistry();
  const std::shared_lock lock(r.mutex);
  const auto next = r.pinned.upper_bound(p);
  if (next == r.pinned.begin()) return 0;
  const auto& [start, memory] = *std::prev(next);
  return p + bytes <= start + memory.bytes ? memory.serial : 0;
}

uint64_t NextSerial() {
  return next_serial;
}
uint64_t NewSerials(int64_t n) {
  const uint64_t first = next_serial.fetch_add(static_cast<uint64_t>(n));
  TACTUS_CHECK_MSG(first + static_cast<uint64_t>(n) < kMostSerials, "more blocks than the emulator can count");
  return first;
}

}  // namespace tactus::compute::cuda::emulator
