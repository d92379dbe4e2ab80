// Listens for a server that is not ours (gRPC's) and hands it the connections that there is room for. One beyond the
// limits gets a GOAWAY and is closed, so that the process always has descriptors left and the listener never falls
// silent.
//
// Thread rule: any; what is called back is called on a thread of its own. Invariant: at most max_connections sockets
// that were handed over are open.
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
    int64_t max_connections = 0;  // one address has half of them at most
    std::string refusal;          // what one beyond them is sent
  };
  // Connections wait until Start. kUnavailable: the port is in use, or the host is no address of this machine.
  static Result<std::unique_ptr<Acceptor>> Listen(const Options& options);
  ~Acceptor();  // no more are taken; joins
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // `take` owns the socket from then on, and closes it when it likes. Once.
  void Start(std::function<void(int socket)> take);
  uint16_t port() const;
  int64_t refused() const;

 private:
  struct Impl;
  explicit Acceptor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::http
