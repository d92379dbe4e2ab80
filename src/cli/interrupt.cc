#include "cli/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace tactus::cli {
namespace {

std::atomic<int> g_count{0}, g_last{2};
static_assert(std::atomic<int>::is_always_lock_free);

// A byte for every Ctrl-C, which a wait for input sees too. Without a pipe a Ctrl-C is seen by what it interrupts.
int g_pipe[2] = {-1, -1};

void OnInterrupt(int) {
  if (g_count.fetch_add(1) + 1 >= g_last) _exit(130);
  const int saved = errno;
  (void)!write(g_pipe[1], "", 1);
  errno = saved;
}

// As when a terminal closes: asks to stop, and never more than that.
void OnHangUp(int) {
  int none = 0;
  g_count.compare_exchange_strong(none, 1);
}

void Catch(int signal, void (*handler)(int) = OnInterrupt) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a blocked read of the terminal returns
  sigaction(signal, &action, nullptr);
}

}  // namespace

void CatchInterrupt(int last) {
  g_last = last;
  if (g_pipe[0] < 0) (void)!pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK);
  Catch(SIGINT);
  struct sigaction before = {};
  const bool ignored = sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;  // nohup
  if (!ignored) Catch(SIGHUP, OnHangUp);
}
void CatchTermination() {
  Catch(SIGTERM);
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
