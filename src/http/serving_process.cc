#include "http/serving_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/unfinished_file.h"
#include "http/connection_places.h"

namespace tactus::http {
namespace {

const char* NameOf(int signal) {
  return signal == SIGINT ? "Ctrl-C" : signal == SIGHUP ? "SIGHUP" : "SIGTERM";
}

// Whether the process has a terminal that controls it, and that is open.
bool HasTerminal() {
  const int terminal = open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
  if (terminal >= 0) close(terminal);
  return terminal >= 0;
}

}  // namespace

StopSignals::StopSignals(std::function<void(std::string_view line)> log)
    : log_(std::move(log)), had_terminal_(HasTerminal()) {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
  struct sigaction hang_up = {};
  if (sigaction(SIGHUP, nullptr, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN) sigaddset(&set_, SIGHUP);
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
  return came_.wait_for(lock, std::chrono::nanoseconds(time_ns), [this] { return stop_ || reload_; }) && stop_;
}

bool StopSignals::TakeReload() {
  std::lock_guard lock(mutex_);
  return std::exchange(reload_, false);
}

void StopSignals::Watch() {
  int received = 0;
  while (!quit_.load()) {
    const timespec pause{0, 100'000'000};
    const int came = sigtimedwait(&set_, nullptr, &pause);
    if (came < 0) continue;  // EAGAIN, EINTR
    if (came == SIGHUP && (!had_terminal_ || HasTerminal())) {
      std::lock_guard lock(mutex_);
      reload_ = true;
      came_.notify_all();
      continue;
    }
    if (!serving_.load()) {
      try {
        log_(fmt::format("stopped by {} before it was ready", NameOf(came)));
      } catch (const std::exception&) {  // no memory for the log line
      }
      RemoveUnfinishedFiles();
      _exit(0);
    }
    if (came != SIGHUP && ++received == 2) {
      RemoveUnfinishedFiles();
      _exit(1);
    }
    std::lock_guard lock(mutex_);
    stop_ = true;
    came_.notify_all();
  }
}

void LogReload(const std::vector<std::pair<const char*, Status>>& parts, const std::vector<std::string>& restart,
               const Log& log) {
  std::string done;
  for (const auto& [name, status] : parts) {
    if (status.ok())
      done += (done.empty() ? "" : ", ") + std::string(name);
    else
      log(fmt::format("error: reload: {}; {} as before", status.message(), name));
  }
  if (!done.empty()) log("reloaded: " + done);
  std::string waits;
  for (const std::string& option : restart) waits += (waits.empty() ? "--" : ", --") + option;
  if (!waits.empty()) log(fmt::format("warning: reload: {} changed; a restart applies that", waits));
}

void EndNow() {
  RemoveUnfinishedFiles();
  _exit(1);
}

int64_t MostOpenFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return int64_t{1} << 30;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
}

void RaiseFileLimit(int64_t connections, int64_t files_each, const Log& log) {
  rlimit limit{};
  const int64_t wanted = FilesFor(connections, files_each);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || MostOpenFiles() >= wanted) return;
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? static_cast<rlim_t>(wanted)
                                                   : std::min(static_cast<rlim_t>(wanted), limit.rlim_max);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
  const int64_t files = MostOpenFiles();
  if (const ConnectionRoom room = RoomWithin(files, connections, files_each); room.less) {
    log(fmt::format(
        "warning: {} open files are allowed: at most {} connections instead of {}; raise 'ulimit -n' to {}, "
        "or lower --max-connections",
        files, room.connections, connections, wanted));
  }
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

std::string UrlOf(const std::string& host, uint16_t port, bool tls) {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", tls ? "https" : "http", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

}  // namespace tactus::http
