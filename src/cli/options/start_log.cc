#include "cli/options/start_log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tactus::cli {
namespace {

// The terminal's width; a wrapped line could not be erased.
size_t Columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

}  // namespace

StartLog::StartLog(bool verbose, http::ServerLog* log)
    : verbose_(verbose), terminal_(isatty(STDERR_FILENO) == 1), log_(log) {}

void StartLog::Clear() {
  std::lock_guard lock(mutex_);
  if (passing_) std::fputs("\r\033[K", stderr);
  passing_ = false;
}

void StartLog::Line(std::string_view text) {
  Clear();
  if (log_ != nullptr) return log_->Line(text);
  std::lock_guard lock(mutex_);
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

void StartLog::Detail(std::string_view text) {
  if (verbose_ || text.starts_with("warning: ")) return Line(text);
  Passing(text);
}

void StartLog::Passing(std::string_view text) {
  if (!terminal_) return;
  Clear();
  std::lock_guard lock(mutex_);
  const auto shown = static_cast<int>(std::min({text.find('\n'), text.size(), Columns() - 1}));
  std::fprintf(stderr, "%.*s", shown, text.data());
  std::fflush(stderr);
  passing_ = true;
}

}  // namespace tactus::cli
