// Messages to the service manager that started the process (systemd's sd_notify protocol): a datagram to the socket in
// NOTIFY_SOCKET. Without that variable nothing is sent.
//
// One thread.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"

namespace tactus::http {

class ServiceManager {
 public:
  // Reads the environment: NOTIFY_SOCKET, and WATCHDOG_USEC if it is meant for this process.
  explicit ServiceManager(Clock& clock);

  void Ready(std::string_view status);
  void Reloading();  // before a reload; Ready ends it
  void Stopping();
  // Sends that the process works, if half of the watchdog's time has passed since the last time.
  void Alive();

 private:
  void Send(const std::string& message) const;

  Clock& clock_;
  const std::string socket_;
  DurationNs watchdog_ns_ = 0;  // 0: none
  TimeNs alive_ns_ = 0;
};

}  // namespace tactus::http
