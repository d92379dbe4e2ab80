#include "cli/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace tactus::cli {
namespace {

std::atomic<int> g_count{0}, g_last{2};
static_assert(std::atomic<int>::is_always_lock_free);

void OnInterrupt(int) {
  if (g_count.fetch_add(1) + 1 >= g_last) _exit(130);
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
  g_count.store(0);
}

}  // namespace tactus::cli
