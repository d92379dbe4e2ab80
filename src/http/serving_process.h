// What a process that serves wants of the system: to be told to stop, and as many open files as it has connections.
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

// Waits for SIGTERM and SIGINT on a thread of its own; made before any other thread, which inherit that they are
// blocked. The second one ends the process, and so does the first while there is nothing to finish.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // From now on there is something to finish.
  void Serving() { serving_.store(true); }
  // True: a signal came.
  bool WaitFor(DurationNs time_ns);

 private:
  void Watch();

  sigset_t set_{}, before_{};
  std::atomic<bool> quit_{false}, serving_{false};
  std::mutex mutex_;
  std::condition_variable came_;
  bool stop_ = false;
  std::thread thread_;
};

using Log = std::function<void(std::string_view line)>;

// Every connection is a file: asks for as many as they may need, and logs a warning where there are fewer.
void RaiseFileLimit(int64_t connections, const Log& log);

bool IsLoopback(const std::string& host);
// "http://host:port", IPv6 addresses in brackets.
std::string UrlOf(const std::string& host, uint16_t port);

}  // namespace tactus::http
