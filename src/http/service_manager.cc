#include "http/service_manager.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/one_line.h"

namespace tactus::http {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int64_t NumberOf(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

}  // namespace

ServiceManager::ServiceManager(Clock& clock) : clock_(clock), socket_(Variable("NOTIFY_SOCKET")) {
  const std::string of = Variable("WATCHDOG_PID");
  if (!of.empty() && NumberOf(of) != getpid()) return;
  constexpr int64_t kMostUs = int64_t{365} * 86'400 * 1'000'000;
  watchdog_ns_ = std::clamp<int64_t>(NumberOf(Variable("WATCHDOG_USEC")), 0, kMostUs) * kMicrosecond;
}

void ServiceManager::Send(const std::string& message) const {
  sockaddr_un to{};
  if (socket_.empty() || socket_.size() >= sizeof to.sun_path) return;
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path, socket_.data(), socket_.size());
  if (socket_[0] == '@') to.sun_path[0] = '\0';  // an address that is no file
  const int sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (sender < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  (void)sendto(sender, message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to), size);
  close(sender);
}

void ServiceManager::Ready(std::string_view status) {
  Send(fmt::format("READY=1\nSTATUS={}", OneLine(status)));
  Alive();
}

// systemd's type notify-reload needs the time, by the clock that SystemClock() reads.
void ServiceManager::Reloading() {
  Send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}", clock_.NowNs() / kMicrosecond));
}

void ServiceManager::Stopping() {
  Send("STOPPING=1");
}

void ServiceManager::Alive() {
  const TimeNs now_ns = clock_.NowNs();
  if (watchdog_ns_ == 0 || (alive_ns_ > 0 && now_ns - alive_ns_ < watchdog_ns_ / 2)) return;
  alive_ns_ = now_ns;
  Send("WATCHDOG=1");
}

}  // namespace tactus::http
