#include "cli/options/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/unfinished_file.h"
#include "cli/options/args.h"

namespace tactus::cli {
namespace {

std::atomic<int> g_count{0}, g_last{2};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free);
std::atomic<bool> g_loading{false}, g_counts_termination{false}, g_ends{false}, g_ended{false}, g_terminal{false};
std::atomic<const char*> g_command{""};
std::atomic<int> g_status{kExitInterrupted}, g_signal{SIGINT};

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// Self-pipe: one byte per Ctrl-C, so that a wait for input sees it. Without a pipe only interrupted calls notice
// Ctrl-C.
int g_pipe[2] = {-1, -1};

// Async-signal-safe, like the handlers that call it.
[[noreturn]] void EndNow(int status) {
  RemoveUnfinishedFiles();
  _exit(status);
}

[[noreturn]] void EndLoading() {
  if (g_ended.exchange(true)) {
    while (true) pause();  // another thread ends the process
  }
  char line[256] = "";
  const auto append = [&line](const char* text) { std::strncat(line, text, sizeof line - std::strlen(line) - 2); };
  if (g_terminal.load()) append("\r\033[K");  // clears the temporary line of the start, or the terminal's ^C
  append("tactus");
  if (*g_command.load() != 0) append(" ");
  append(g_command.load());
  append(": stopped by ");
  const int by = g_signal.load();
  append(by == SIGTERM ? "SIGTERM" : by == SIGHUP ? "SIGHUP" : "Ctrl-C");
  append("\n");
  (void)!write(STDERR_FILENO, line, std::strlen(line));
  EndNow(g_status.load());
}

void OnInterrupt(int signal) {
  g_signal.store(signal);
  if (g_count.fetch_add(1) + 1 >= g_last && !g_loading.load()) EndNow(kExitInterrupted);
  if (g_loading.load()) EndLoading();
  const int saved = errno;
  (void)!write(g_pipe[1], "", 1);
  errno = saved;
}

// SIGHUP, when a terminal closes: requests a stop, but never forces one.
void OnHangUp(int signal) {
  int none = 0;
  if (g_count.compare_exchange_strong(none, 1)) g_signal.store(signal);
  if (g_loading.load()) EndLoading();
}

bool Ignored(int signal) {
  struct sigaction before = {};
  return sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
}

sigset_t SignalSet() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) sigaddset(&set, signal);
  return set;
}

void ChangeMask(int how) {
  const sigset_t set = SignalSet();
  pthread_sigmask(how, &set, nullptr);
}

void Catch(int signal, void (*handler)(int) = OnInterrupt) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_mask = SignalSet();  // no handler interrupts another
  action.sa_flags = 0;           // no SA_RESTART: a blocked read of the terminal must return
  sigaction(signal, &action, nullptr);
}

}  // namespace

void EndOnSignals(const char* command, int status) {
  g_command = command;
  g_status = status;
  g_terminal = isatty(STDERR_FILENO) == 1;
  g_loading = true;
  if (!g_ends.exchange(true)) {
    for (const int signal : kSignals) {
      if (!Ignored(signal)) Catch(signal, signal == SIGHUP ? OnHangUp : OnInterrupt);
    }
  }
  ReleaseSignals();
}
void HoldSignals() {
  ChangeMask(SIG_BLOCK);
}
void ReleaseSignals() {
  ChangeMask(SIG_UNBLOCK);
}

void CatchInterrupt(int last) {
  g_last = last;
  if (g_pipe[0] < 0) (void)!pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK);
  Catch(SIGINT);
  if (!Ignored(SIGHUP)) Catch(SIGHUP, OnHangUp);  // nohup
  if (g_ends.load() && !g_counts_termination.load() && !Ignored(SIGTERM)) Catch(SIGTERM, SIG_DFL);
  g_loading = false;
}
void CatchTermination() {
  g_counts_termination = true;
  Catch(SIGTERM);
}

Loading::Loading() {
  g_loading = true;
  if (g_count.load() == 0) return;
  HoldSignals();  // a handler on the exiting thread would wait for its own exit
  EndLoading();
}
Loading::~Loading() {
  g_loading = false;
}

int InterruptCount() {
  return g_count.load();
}
void ClearInterrupt() {
  char seen[64];
  while (read(g_pipe[0], seen, sizeof(seen)) > 0) {
  }
  g_count.store(0);
}

bool WaitForInput(int fd) {
  pollfd both[] = {{fd, POLLIN, 0}, {g_pipe[0], POLLIN, 0}};
  if (poll(both, 2, -1) < 0) return false;
  return both[1].revents == 0;
}

}  // namespace tactus::cli
