// System settings of a serving process: stop signals, and enough open files for its connections.
#pragma once

#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "base/clock.h"

namespace tactus::http {

// Waits for SIGTERM, SIGINT and SIGHUP on a separate thread. Construct it before any other thread, so that all threads
// inherit the blocked signals. The second signal ends the process, and so does the first before Serving(). SIGHUP, as
// from a closed terminal, requests a stop and never ends the process by itself; under nohup it is ignored.
class StopSignals {
 public:
  // `log`: called on the signal thread if the process ends before Serving(). That end removes unfinished files
  // (base/unfinished_file.h).
  explicit StopSignals(std::function<void(std::string_view line)> log);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // From now on the first signal only requests a stop.
  void Serving() { serving_.store(true); }
  // True: a signal arrived within `time_ns` or before.
  bool WaitFor(DurationNs time_ns);

 private:
  void Watch();

  const std::function<void(std::string_view line)> log_;
  sigset_t set_{}, before_{};
  std::atomic<bool> quit_{false}, serving_{false};
  std::mutex mutex_;
  std::condition_variable came_;
  bool stop_ = false;
  std::thread thread_;
};

using Log = std::function<void(std::string_view line)>;

// The number of file descriptors that this process may have.
int64_t MostOpenFiles();
// Raises the limit to the need of the connections, `files_each` for one. If fewer are allowed, a server accepts fewer
// connections (RoomWithin), which is logged.
void RaiseFileLimit(int64_t connections, int64_t files_each, const Log& log);

bool IsLoopback(const std::string& host);
// "http://host:port", IPv6 addresses in brackets.
std::string UrlOf(const std::string& host, uint16_t port);

}  // namespace tactus::http
