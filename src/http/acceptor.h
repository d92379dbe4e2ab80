// Listens for a foreign server (gRPC's) and passes connections to it, up to limits. A connection beyond the limits gets
// a GOAWAY and is closed, so that the process always has descriptors left and the listener keeps accepting.
//
// Thread rule: any; callbacks run on a separate thread. Invariant: at most max_connections of the passed sockets are
// open.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tactus/status.h"

namespace tactus::http {

class Acceptor {
 public:
  struct Options {
    std::string host;
    uint16_t port = 0;            // 0: any free one
    int64_t max_connections = 0;  // one address may have at most half of them
    std::string refusal;          // the bytes sent to a connection beyond the limits
  };
  // Connections wait until Start. kUnavailable: the port is in use, or the host is not an address of this machine.
  static Result<std::unique_ptr<Acceptor>> Listen(const Options& options);
  ~Acceptor();  // accepts no more; joins
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // `take` owns the socket and may close it at any time. Call once.
  void Start(std::function<void(int socket)> take);
  uint16_t port() const;
  int64_t refused() const;

 private:
  struct Impl;
  explicit Acceptor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::http
