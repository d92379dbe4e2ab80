// What a command says on standard error while it starts and runs: lines for people, and the account of the start, which
// only --verbose and a terminal show. Any thread.
#pragma once

#include <mutex>
#include <string_view>

namespace tactus::cli {

class StartLog {
 public:
  explicit StartLog(bool verbose);
  ~StartLog() { Clear(); }

  // Always shown.
  void Line(std::string_view text);
  // Of the start: shown with --verbose, and where it is a warning. Else a terminal has it as one line that the next
  // replaces, so that a long start is seen to go on.
  void Detail(std::string_view text);
  // Takes the passing line away, for what others write.
  void Clear();

 private:
  const bool verbose_, terminal_;
  std::mutex mutex_;
  bool passing_ = false;
};

}  // namespace tactus::cli
