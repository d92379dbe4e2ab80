// The log of a serving process, to standard error or a file: lines in levels, as text for people or as JSON for
// programs. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "tactus/option_fields.h"
#include "tactus/status.h"

namespace tactus::http {

struct LogOptions {
  std::string log_level = "info", log_format = "text", log_file;  // no file: standard error

  template <class V>
  void VisitFields(V& v) {
    v.Group("Log");
    v.Field("log-level", log_level,
            {.choices = "debug|info|warning|error",
             .help = "least level of lines in the log; debug: all details of the start, and probes and scrapes"});
    v.Field("log-format", log_format, {.choices = "text|json", .help = "text, or a JSON object on each line"});
    v.Field("log-file", log_file,
            {.help = "file to which the log is appended; opened again at SIGHUP, after a rotation has renamed it; "
                     "default: standard error"});
  }
};

enum class LogLevel { kDebug, kInfo, kWarning, kError };

class ServerLog {
 public:
  // kInvalidArgument: the file cannot be written.
  static Result<std::unique_ptr<ServerLog>> Open(const LogOptions& options);
  ~ServerLog();  // writes all lines

  bool shows(LogLevel level) const { return level >= least_; }
  bool json() const { return json_; }
  bool to_file() const { return !path_.empty(); }
  // A line of the level that it states: "warning: ..." and "error: ...", else kInfo.
  void Line(std::string_view text);
  void Write(LogLevel level, std::string_view text);
  // A line with fields: `text` for the format text, else `members`, the members of a JSON object without its braces.
  // Never waits: a separate thread writes it, and while that cannot keep up, lines are lost and counted in a warning.
  void WriteLater(LogLevel level, std::string_view text, std::string_view members);
  // Opens the file again by its name. kInvalidArgument: it cannot be written; the log continues in the old file.
  Status Reopen();

 private:
  explicit ServerLog(const LogOptions& options);
  std::string Made(LogLevel level, std::string_view text, std::string_view members) const;
  void Put(std::string_view lines);
  void WriteQueued();

  const std::string path_;
  const bool json_;
  LogLevel least_ = LogLevel::kInfo;
  std::mutex mutex_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};

  static constexpr size_t kMostQueuedBytes = 1 << 20;
  std::mutex queue_mutex_;
  std::condition_variable queued_;
  std::string queue_;
  int64_t lost_lines_ = 0;
  bool ending_ = false;
  std::thread writer_;  // from the first WriteLater on
};

}  // namespace tactus::http
