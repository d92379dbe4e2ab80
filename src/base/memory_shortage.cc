#include "base/memory_shortage.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>

#include "base/unfinished_file.h"

namespace tactus {
namespace {

constexpr size_t kReserveBytes = size_t{8} << 20;
constexpr std::chrono::milliseconds kPause{2};
constexpr DurationNs kMostWaitNs = 10 * kSecond;
constexpr DurationNs kNewWaitNs = 100 * kMillisecond;  // an earlier shortage belongs to another allocation

std::atomic<void*> reserve{nullptr};
std::atomic<Clock*> the_clock{nullptr};
thread_local bool needs_memory = false;
thread_local TimeNs first_ns = 0, last_ns = 0;  // begin and last retry of the current wait

void OnShortage() {
  if (!needs_memory) throw std::bad_alloc();
  if (void* const kept = reserve.exchange(nullptr)) {
    munmap(kept, kReserveBytes);
    return;
  }
  const TimeNs now_ns = the_clock.load()->NowNs();
  if (now_ns - last_ns > kNewWaitNs) first_ns = now_ns;
  last_ns = now_ns;
  if (now_ns - first_ns > kMostWaitNs) throw std::bad_alloc();
  std::this_thread::sleep_for(kPause);
}

}  // namespace

int ArenasWithin(uint64_t address_space_bytes) {
  return static_cast<int>(std::clamp<uint64_t>(address_space_bytes >> 30, 1, 1024));
}

void LimitArenas() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  mallopt(M_ARENA_MAX, ArenasWithin(limit.rlim_cur));
}

void WaitForMemoryWhereNeeded(Clock& clock) {
  the_clock.store(&clock);
  std::set_new_handler(OnShortage);
  KeepMemoryInReserve();
}

void KeepMemoryInReserve() noexcept {
  if (the_clock.load() == nullptr || reserve.load() != nullptr) return;
  void* const kept = mmap(nullptr, kReserveBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (kept == MAP_FAILED) return;
  void* none = nullptr;
  if (!reserve.compare_exchange_strong(none, kept)) munmap(kept, kReserveBytes);
}

void EndForWantOfMemory() noexcept {
  constexpr char kLine[] =
      "tactus: no memory for 10 s; the process ends (raise 'ulimit -v' or the container's limit)\n";
  (void)!write(STDERR_FILENO, kLine, sizeof kLine - 1);
  RemoveUnfinishedFiles();
  _exit(1);
}

NeedsMemory::NeedsMemory(bool needs) : outer_(needs_memory) {
  needs_memory = needs;
}

NeedsMemory::~NeedsMemory() {
  needs_memory = outer_;
}

}  // namespace tactus
