#include "compute/weights/sigbus_guard.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

namespace tactus::compute {
namespace {

constexpr int kMaxRanges = 1024;

// Static storage: the handler may not allocate, and a range must stay readable after other objects are destroyed.
// `begin` is published last and withdrawn first, so that a handler never reads half an entry.
struct Range {
  std::atomic<uintptr_t> begin{0};
  uintptr_t end = 0;
  std::array<char, 512> path{};
  bool used = false;
};
Range g_ranges[kMaxRanges];
std::mutex g_mutex;

void Write(const char* text) {
  size_t left = std::strlen(text);
  while (left > 0) {
    const ssize_t n = write(STDERR_FILENO, text, left);
    if (n <= 0) return;
    text += n;
    left -= static_cast<size_t>(n);
  }
}

void OnSigbus(int signal_number, siginfo_t* info, void*) {
  const bool is_fault = info->si_code > 0;  // otherwise another process sent it, and there is no address
  const auto address = is_fault ? reinterpret_cast<uintptr_t>(info->si_addr) : 0;
  for (const Range& range : g_ranges) {
    const uintptr_t begin = range.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= range.end) continue;
    Write("tactus: weights file ");
    Write(range.path.data());
    Write(" shrank or became unreadable while in use\n");
    _exit(1);
  }
  signal(signal_number, SIG_DFL);  // not from a registered range
  raise(signal_number);            // blocked until the handler returns, then the default action
}

}  // namespace

int RegisterMappedRange(const void* data, size_t size, const char* path) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  for (int i = 0; i < kMaxRanges; ++i) {
    Range& range = g_ranges[i];
    if (range.used) continue;
    range.used = true;
    // The mapping extends to the end of its last page.
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    range.end = (reinterpret_cast<uintptr_t>(data) + size + page - 1) / page * page;
    std::strncpy(range.path.data(), path, range.path.size() - 1);
    range.path.back() = '\0';
    range.begin.store(reinterpret_cast<uintptr_t>(data), std::memory_order_release);
    return i;
  }
  return -1;
}

void UnregisterMappedRange(int slot) {
  if (slot < 0) return;
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_ranges[slot].begin.store(0, std::memory_order_release);
  g_ranges[slot].used = false;
}

void InstallSigbusGuard() {
  struct sigaction action{};
  action.sa_sigaction = OnSigbus;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace tactus::compute
