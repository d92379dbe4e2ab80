// The progress of a long command: one line on a terminal, with rate and time left, and nothing elsewhere. One thread at
// a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace tactus::cli {

// "[######    ] 12/60 requests, 3.2/s, 15 s left; `more`". `seconds`: since the begin. The time left assumes the mean
// rate so far; without anything done, and at the end, there is none.
std::string ProgressText(int64_t done, int64_t total, std::string_view unit, double seconds, std::string_view more);

// The same for work whose end is a time: share, 0 to 1, of it is done. "[###       ] `done`, 15 s left".
std::string ShareText(double share, std::string_view done, double seconds);

class ProgressLine {
 public:
  explicit ProgressLine(Clock& clock);
  ~ProgressLine() { End(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Draws the line, at most five times a second.
  void Show(int64_t done, int64_t total, std::string_view unit, std::string_view more = {});
  void ShowShare(double share, std::string_view done);
  // Erases the line before other output; the next Show draws it again.
  void Clear();
  // Ends the line, if one was drawn.
  void End();

 private:
  double Seconds() const;
  bool Due(bool last);
  void Draw(const std::string& text);

  Clock& clock_;
  const bool terminal_;
  const TimeNs begin_ns_;
  TimeNs next_ns_;
  bool drawn_ = false;
};

}  // namespace tactus::cli
