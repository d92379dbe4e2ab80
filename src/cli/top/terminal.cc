#include "cli/top/terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "cli/options/interrupt.h"

namespace tactus::cli {
namespace {

// The alternate screen, without a cursor and without wrapping of long lines.
constexpr std::string_view kEnter = "\033[?1049h\033[?25l\033[?7l\033[2J";
constexpr std::string_view kLeave = "\033[0m\033[?7h\033[?25h\033[?1049l";
constexpr int kFatal[] = {SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

termios g_before;
std::atomic<bool> g_has_keys{false}, g_entered{false}, g_stop{false}, g_continued{false};

// Async-signal-safe.
void GiveBack() {
  if (!g_entered.exchange(false)) return;
  (void)!write(STDOUT_FILENO, kLeave.data(), kLeave.size());
  if (g_has_keys.load()) tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
}

void OnFatal(int signal) {
  GiveBack();
  raise(signal);  // the handler is reset: the default action follows
}

void OnStop(int) {
  g_stop = true;
}
void OnContinue(int) {
  g_continued = true;
}

// SA_RESTART: neither signal shall end a read or a write.
void Handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

bool WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR && InterruptCount() == 0) continue;
    if (written < 0 && errno == EAGAIN) {
      pollfd out = {STDOUT_FILENO, POLLOUT, 0};
      if (poll(&out, 1, -1) < 0 && InterruptCount() > 0) return false;
      continue;
    }
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool Terminal::Usable() {
  const std::string_view kind = Environment("TERM");
  return isatty(STDOUT_FILENO) == 1 && !kind.empty() && kind != "dumb";
}

bool Terminal::ShowsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string_view locale = Environment(name);
    if (locale.empty()) continue;
    return locale.find("UTF-8") != std::string_view::npos || locale.find("utf8") != std::string_view::npos;
  }
  return false;
}

// https://no-color.org: a value that is not empty turns colours off.
Terminal::Terminal() : colours_(Environment("NO_COLOR").empty()) {
  g_has_keys = isatty(STDIN_FILENO) == 1 && tcgetattr(STDIN_FILENO, &g_before) == 0;
  for (const int signal : kFatal) {
    struct sigaction action = {};
    action.sa_handler = OnFatal;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    sigaction(signal, &action, nullptr);
  }
  g_stop = g_continued = false;
  struct sigaction before = {};
  stoppable_ = sigaction(SIGTSTP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN;
  if (stoppable_) Handle(SIGTSTP, OnStop);
  Handle(SIGCONT, OnContinue);
  Enter();
}

Terminal::~Terminal() {
  Leave();
  for (const int signal : kFatal) ::signal(signal, SIG_DFL);
  if (stoppable_) ::signal(SIGTSTP, SIG_DFL);
  ::signal(SIGCONT, SIG_DFL);
}

void Terminal::Enter() {
  if (g_has_keys.load()) {
    termios keys = g_before;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
    keys.c_iflag &= ~static_cast<tcflag_t>(IXON);  // Ctrl-S would hold the screen, and the program with it
    keys.c_cc[VSUSP] = _POSIX_VDISABLE;
    keys.c_cc[VMIN] = 0;
    keys.c_cc[VTIME] = 0;
    while (tcsetattr(STDIN_FILENO, TCSANOW, &keys) != 0 && errno == EINTR && InterruptCount() == 0) continue;
  }
  g_entered = true;
  WriteAll(kEnter);
}

void Terminal::Leave() {
  GiveBack();
}

void Terminal::Suspend() {
  if (!stoppable_) return;
  Leave();
  Handle(SIGTSTP, SIG_DFL);
  raise(SIGTSTP);
  Handle(SIGTSTP, OnStop);
  g_stop = g_continued = false;
  Enter();
}

bool Terminal::TakeStop() {
  return g_stop.exchange(false);
}

bool Terminal::TakeContinue() {
  return g_continued.exchange(false);
}

Terminal::Size Terminal::size() const {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

std::string Terminal::Typed() {
  std::string typed;
  if (!g_has_keys.load() || closed_) return typed;
  pollfd in = {STDIN_FILENO, POLLIN, 0};
  while (poll(&in, 1, 0) > 0) {
    char bytes[256];
    const ssize_t size = read(STDIN_FILENO, bytes, sizeof bytes);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) {
      closed_ = true;
      break;
    }
    typed.append(bytes, static_cast<size_t>(size));
  }
  return typed;
}

bool Terminal::Show(const std::vector<Line>& lines, Size size) {
  std::string text = "\033[H";
  const size_t shown = std::min(lines.size(), static_cast<size_t>(size.lines));
  for (size_t i = 0; i < shown; ++i) {
    text += LineText(lines[i], size.columns, colours_) + "\033[K";
    if (i + 1 < static_cast<size_t>(size.lines)) text += "\r\n";
  }
  if (shown < static_cast<size_t>(size.lines)) text += "\033[J";
  return WriteAll(text);
}

}  // namespace tactus::cli
