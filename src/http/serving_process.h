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
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tactus/status.h"

namespace tactus::http {

// Waits for SIGTERM, SIGINT and SIGHUP on a separate thread. Construct it before any other thread, so that all threads
// inherit the blocked signals. The second signal ends the process, and so does the first before Serving(). SIGHUP
// requests a reload. If its reason is that the process's terminal has closed, it requests a stop, and never ends the
// process by itself; under nohup it is ignored.
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
  // True: a stop was requested within `time_ns` or before. Returns early for a reload.
  bool WaitFor(DurationNs time_ns);
  // True: a reload was requested since the last call.
  bool TakeReload();

 private:
  void Watch();

  const std::function<void(std::string_view line)> log_;
  sigset_t set_{}, before_{};
  std::atomic<bool> quit_{false}, serving_{false};
  std::mutex mutex_;
  std::condition_variable came_;
  const bool had_terminal_;
  bool stop_ = false, reload_ = false;
  std::thread thread_;
};

using Log = std::function<void(std::string_view line)>;

class ServerLog;

// What a command gives to its serving process, beside the options.
struct ProcessParts {
  ServerLog* log = nullptr;  // for the access log, and opened again at a reload; may be null
  // The options that a reload applies, as they are in the files now.
  struct Reread {
    std::vector<std::string> api_key, api_key_class, slo_class;
    std::string admin_key;
    std::vector<std::string> restart;  // names of others that have changed
  };
  // Reads flags, environment and file again. Empty: no option can change.
  std::function<Result<Reread>()> reread;
};

// What a reload did and did not do, for the log: `parts` with the name of each part and its result.
void LogReload(const std::vector<std::pair<const char*, Status>>& parts, const std::vector<std::string>& restart,
               const Log& log);
// Ends the process with status 1, without waiting for its threads, of which one hangs.
[[noreturn]] void EndNow();

// The number of file descriptors that this process may have.
int64_t MostOpenFiles();
// Raises the limit to the need of the connections, `files_each` for one. If fewer are allowed, a server accepts fewer
// connections (RoomWithin), which is logged.
void RaiseFileLimit(int64_t connections, int64_t files_each, const Log& log);

bool IsLoopback(const std::string& host);
// "http://host:port", with TLS https; IPv6 addresses in brackets.
std::string UrlOf(const std::string& host, uint16_t port, bool tls = false);

}  // namespace tactus::http
