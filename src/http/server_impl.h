// State that the listener (server.cc) and its connections (connection.cc) share. Internal to http/; includes Asio.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>

#include "http/connection_places.h"
#include "http/exchange.h"
#include "http/loop_impl.h"
#include "http/server.h"
#include "http/spare_file.h"

namespace tactus::http {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class Connection;

constexpr DurationNs kLingerNs = 2 * kSecond;  // time for the client to read the refusal
constexpr int kMaxStatus = 600;

struct Server::Impl {
  // opts.max_connections is r.connections.
  Impl(const ServerOptions& opts, const ConnectionRoom& r, Handler* h, Clock& c)
      : options(opts),
        room(r),
        handler(h),
        clock(c),
        per_client(opts.max_connections_per_client > 0 ? opts.max_connections_per_client
                                                       : std::max<int64_t>(1, opts.max_connections / 2)),
        places(opts.max_connections, per_client, r.beyond / 2),
        max_body_bytes(opts.max_body_bytes),
        bodies(std::make_shared<BodyTotal>(opts.max_body_total_bytes)) {}

  asio::awaitable<void> AcceptLoop();
  void Accepted(tcp::socket socket);
  // Writes the 503 without waiting and closes the socket a little later.
  void RefuseAtOnce(tcp::socket socket, const std::string& client);
  void SayNo(tcp::socket& socket, const HttpResponse& response);
  // The process has no descriptor left: answers one waiting client with 503, using the spare descriptor. False: that
  // failed too.
  bool RefuseForWantOfFiles();
  void CloseRefused();  // closes the oldest
  void ScheduleTick();
  void Tick();
  void TakeDirty();
  void ExchangeEnded();
  HttpResponse NoPlace(const std::string& client);
  void Count(int status) {
    responses[static_cast<size_t>(std::clamp(status, 0, kMaxStatus - 1))].fetch_add(1, std::memory_order_relaxed);
  }

  struct Refused {
    tcp::socket socket;
    TimeNs close_ns;
  };

  const ServerOptions options;
  const ConnectionRoom room;
  Handler* const handler;
  Clock& clock;
  const int64_t per_client;
  DurationNs tick_ns = kSecond / 4;
  std::unordered_set<Connection*> connections;  // io thread; before `io`, whose coroutine frames unregister here
  ConnectionPlaces places;
  std::atomic<int64_t> max_body_bytes;  // LimitBodies may lower it below the options
  const std::shared_ptr<BodyTotal> bodies;
  std::shared_ptr<WakeList> wake_list = std::make_shared<WakeList>();
  std::atomic<bool> draining{false};
  std::atomic<int64_t> open{0}, opened{0}, refused{0}, exchanges{0}, client_gone{0}, bodies_refused{0}, tls_failures{0};
  std::array<std::atomic<int64_t>, kMaxStatus> responses{};
  std::mutex idle_mutex;
  std::condition_variable idle;
  Loop loop;
  asio::io_context& io = loop.impl().io;
  tcp::acceptor acceptor{io};
  SpareFile spare_file;
  asio::steady_timer tick{io};
  std::deque<Refused> lingering;  // io thread; refused, waiting to be closed; at most half of room.beyond
  std::thread thread;
};

// Status line and headers. `chunked`: the body states its length; else it is `body_bytes`.
std::string HeadText(const HttpResponse& head, bool chunked, size_t body_bytes, bool close, bool http10);

}  // namespace tactus::http
