#include "http/server_log.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/json_text.h"
#include "base/one_line.h"
#include "base/thread_role.h"
#include "base/unix_time.h"

namespace tactus::http {
namespace {

constexpr const char* kLevels[] = {"debug", "info", "warning", "error"};

const char* NameOf(LogLevel level) {
  return kLevels[static_cast<size_t>(level)];
}

}  // namespace

ServerLog::ServerLog(const LogOptions& options) : path_(options.log_file), json_(options.log_format == "json") {
  for (size_t i = 0; i < std::size(kLevels); ++i) {
    if (options.log_level == kLevels[i]) least_ = static_cast<LogLevel>(i);
  }
}

Result<std::unique_ptr<ServerLog>> ServerLog::Open(const LogOptions& options) {
  std::unique_ptr<ServerLog> log(new ServerLog(options));
  if (log->to_file()) TACTUS_RETURN_IF_ERROR(log->Reopen());
  return log;
}

Status ServerLog::Reopen() {
  if (path_.empty()) return Status();
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(std::fopen(path_.c_str(), "ae"), std::fclose);
  if (opened == nullptr) {
    return InvalidArgument(fmt::format("--log-file: {} cannot be written: {}; give a file in a folder that this user "
                                       "may write",
                                       path_, std::strerror(errno)),
                           "log-file");
  }
  std::lock_guard lock(mutex_);
  file_ = std::move(opened);
  return Status();
}

void ServerLog::Line(std::string_view text) {
  const bool warns = text.starts_with("warning: "), fails = text.starts_with("error: ");
  Write(warns ? LogLevel::kWarning : fails ? LogLevel::kError : LogLevel::kInfo, text);
}

void ServerLog::Write(LogLevel level, std::string_view text) {
  if (!shows(level)) return;
  if (!json_) return Put(Made(level, text, {}));
  // The level is a separate member.
  const std::string_view prefix = level == LogLevel::kWarning ? "warning: "
                                  : level == LogLevel::kError ? "error: "
                                                              : "";
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  std::string members = "\"message\":";
  json_text::AppendJsonString(&members, text);
  Put(Made(level, text, members));
}

void ServerLog::WriteLater(LogLevel level, std::string_view text, std::string_view members) {
  if (!shows(level)) return;
  const std::string line = Made(level, text, members);
  std::lock_guard lock(queue_mutex_);
  if (queue_.size() + line.size() > kMostQueuedBytes) {
    ++lost_lines_;
    return;
  }
  if (!writer_.joinable()) writer_ = std::thread([this] { WriteQueued(); });
  queue_ += line;
  queued_.notify_one();
}

void ServerLog::WriteQueued() {
  SetThreadRole(ThreadRole::kService, "tactus-log");
  std::unique_lock lock(queue_mutex_);
  while (true) {
    queued_.wait(lock, [this] { return !queue_.empty() || ending_; });
    if (queue_.empty()) return;
    std::string lines;
    lines.swap(queue_);
    const int64_t lost = std::exchange(lost_lines_, 0);
    lock.unlock();
    Put(lines);
    if (lost > 0) {
      Write(
          LogLevel::kWarning,
          fmt::format("warning: {} lines of the access log were lost, because they came faster than the log is written",
                      lost));
    }
    lock.lock();
  }
}

ServerLog::~ServerLog() {
  {
    std::lock_guard lock(queue_mutex_);
    ending_ = true;
  }
  queued_.notify_one();
  if (writer_.joinable()) writer_.join();
}

std::string ServerLog::Made(LogLevel level, std::string_view text, std::string_view members) const {
  constexpr size_t kMostBytes = 64 << 10;
  // The lines of a terminal and of systemd's journal need no time.
  if (!json_ && !to_file()) return std::string(text) + '\n';
  const std::string time = UtcText(UnixNs());
  if (!json_) return fmt::format("{} {:<7} {}\n", time, NameOf(level), OneLine(text, kMostBytes));
  return fmt::format("{{\"time\":\"{}\",\"level\":\"{}\",{}}}\n", time, NameOf(level), members);
}

// One call for each line or batch of lines: other processes may append to the same file.
void ServerLog::Put(std::string_view lines) {
  std::lock_guard lock(mutex_);
  std::FILE* const to = file_ ? file_.get() : stderr;
  std::fwrite(lines.data(), 1, lines.size(), to);
  std::fflush(to);
}

}  // namespace tactus::http
