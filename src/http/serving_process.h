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

// Waits for SIGTERM, SIGINT and SIGHUP on a thread of its own; made before any other thread, which inherit that they
// are blocked. The second one ends the process, and so does the first while there is nothing to finish. SIGHUP, as of a
// terminal that closes, asks to stop and ends nothing, however often it comes; under nohup it is ignored.
class StopSignals {
 public:
  // `log`: of an end before Serving(), on the thread of its own. Unfinished files (base/unfinished_file.h) go with it.
  explicit StopSignals(std::function<void(std::string_view line)> log);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // From now on there is something to finish.
  void Serving() { serving_.store(true); }
  // True: a signal came.
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

// File descriptors that this process may have.
int64_t MostOpenFiles();
// Asks for as many as the connections may need, `files_each` for one. Where there are fewer a server takes fewer
// connections (RoomWithin), which is logged.
void RaiseFileLimit(int64_t connections, int64_t files_each, const Log& log);

bool IsLoopback(const std::string& host);
// "http://host:port", IPv6 addresses in brackets.
std::string UrlOf(const std::string& host, uint16_t port);

}  // namespace tactus::http
