#include "cli/options/progress_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tactus::cli {
namespace {

constexpr DurationNs kDrawEvery = kSecond / 5;
constexpr size_t kBarWidth = 20;

std::string BarText(double share) {
  const auto filled = static_cast<size_t>(static_cast<double>(kBarWidth) * std::clamp(share, 0.0, 1.0));
  return fmt::format("[{}{}]", std::string(filled, '#'), std::string(kBarWidth - filled, ' '));
}

std::string SecondsLeftText(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} s", seconds);
  return seconds < 6000 ? fmt::format("{:.0f} min", seconds / 60) : fmt::format("{:.1f} h", seconds / 3600);
}

// A wrapped line could not be drawn over.
size_t WindowColumns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

}  // namespace

std::string ProgressText(int64_t done, int64_t total, std::string_view unit, double seconds, std::string_view more) {
  const int64_t all = std::max<int64_t>({total, done, 1});
  const double share = static_cast<double>(done) / static_cast<double>(all);
  std::string text = fmt::format("{} {}/{} {}", BarText(share), done, all, unit);
  if (done > 0 && seconds > 0) {
    const double rate = static_cast<double>(done) / seconds;
    text += fmt::format(", {:.{}f}/s", rate, rate < 10 ? 2 : 0);
    if (done < all) text += fmt::format(", {} left", SecondsLeftText(static_cast<double>(all - done) / rate));
  }
  return more.empty() ? text : fmt::format("{}; {}", text, more);
}

std::string ShareText(double share, std::string_view done, double seconds) {
  std::string text = fmt::format("{} {}", BarText(share), done);
  if (share > 0 && share < 1) text += fmt::format(", {} left", SecondsLeftText(seconds * (1 - share) / share));
  return text;
}

ProgressLine::ProgressLine(Clock& clock)
    : clock_(clock),
      terminal_(isatty(STDERR_FILENO) == 1),
      begin_ns_(clock.NowNs()),
      next_ns_(begin_ns_ + kDrawEvery) {}

double ProgressLine::Seconds() const {
  return static_cast<double>(clock_.NowNs() - begin_ns_) * 1e-9;
}

bool ProgressLine::Due(bool last) {
  const TimeNs now_ns = clock_.NowNs();
  if (!terminal_ || (now_ns < next_ns_ && !(last && drawn_))) return false;
  next_ns_ = now_ns + kDrawEvery;
  return true;
}

void ProgressLine::Draw(const std::string& text) {
  drawn_ = true;
  std::fprintf(stderr, "\r%.*s\033[K", static_cast<int>(std::min(text.size(), WindowColumns() - 1)), text.c_str());
  std::fflush(stderr);
}

void ProgressLine::Show(int64_t done, int64_t total, std::string_view unit, std::string_view more) {
  if (Due(done >= total)) Draw(ProgressText(done, total, unit, Seconds(), more));
}

void ProgressLine::ShowShare(double share, std::string_view done) {
  if (Due(share >= 1)) Draw(ShareText(share, done, Seconds()));
}

void ProgressLine::Clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
  next_ns_ = clock_.NowNs();
}

void ProgressLine::End() {
  if (drawn_) std::fprintf(stderr, "\n");
  drawn_ = false;
}

}  // namespace tactus::cli
