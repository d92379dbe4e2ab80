// What a command prints to standard error while it starts and runs: lines that are always shown, and details of the
// start, shown only with --verbose or, one at a time, on a terminal. Any thread.
#pragma once

#include <mutex>
#include <string_view>

#include "http/server_log.h"

namespace tactus::cli {

class StartLog {
 public:
  // `log`: gets the lines; null: standard error. Outlives this.
  explicit StartLog(bool verbose, http::ServerLog* log = nullptr);
  ~StartLog() { Clear(); }

  // Always shown.
  void Line(std::string_view text);
  // A detail of the start: shown with --verbose and for warnings. Otherwise a terminal shows it as one line that the
  // next one replaces, so that a long start shows progress.
  void Detail(std::string_view text);
  // On a terminal: one line that the next one replaces. Elsewhere nothing.
  void Passing(std::string_view text);
  bool terminal() const { return terminal_; }
  bool server_log() const { return log_ != nullptr; }  // the lines go to a server's log
  // Erases the temporary line before other output.
  void Clear();

 private:
  const bool verbose_, terminal_;
  http::ServerLog* const log_;
  std::mutex mutex_;
  bool passing_ = false;
};

}  // namespace tactus::cli
