#include "http/serving_process.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "http/server.h"

namespace tactus::http {
namespace {

constexpr int64_t kOtherFiles = 128 + kPlacesBeyondLimit;  // weights, logs, listener, refusals, ...

}  // namespace

StopSignals::StopSignals() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
  thread_ = std::thread([this] { Watch(); });
}

StopSignals::~StopSignals() {
  quit_.store(true);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool StopSignals::WaitFor(DurationNs time_ns) {
  std::unique_lock lock(mutex_);
  return came_.wait_for(lock, std::chrono::nanoseconds(time_ns), [this] { return stop_; });
}

void StopSignals::Watch() {
  int received = 0;
  while (!quit_.load()) {
    const timespec pause{0, 100'000'000};
    if (sigtimedwait(&set_, nullptr, &pause) < 0) continue;  // EAGAIN, EINTR
    if (!serving_.load()) _exit(0);
    if (++received == 2) _exit(1);
    std::lock_guard lock(mutex_);
    stop_ = true;
    came_.notify_all();
  }
}

void RaiseFileLimit(int64_t connections, const Log& log) {
  rlimit limit{};
  const auto wanted = static_cast<rlim_t>(connections + kOtherFiles);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? wanted : std::min(wanted, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  if (limit.rlim_cur < wanted) {
    log(fmt::format(
        "warning: {} open files allowed, {} connections need {}; raise 'ulimit -n' or lower --max-connections",
        limit.rlim_cur, connections, wanted));
  }
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

std::string UrlOf(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

}  // namespace tactus::http
