// The listener: accepts connections, assigns places, ticks, and wakes connections with new output. Everything but the
// wake list runs on the one io thread.
#include "http/server.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/thread_role.h"
#include "http/connection.h"
#include "http/serving_process.h"

namespace tactus::http {

asio::awaitable<void> Server::Impl::AcceptLoop() {
  constexpr std::chrono::milliseconds kPause{20};
  asio::steady_timer pause(io);
  for (;;) {
    // Without memory anything here may throw: that client is dropped, and the next one may succeed.
    bool short_of_memory = false;
    try {
      error_code ec;
      tcp::socket socket(io);
      co_await acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, ec));
      if (ec == asio::error::operation_aborted) co_return;
      const bool no_files =
          ec == asio::error::no_descriptors || ec == boost::system::errc::too_many_files_open_in_system;
      if (no_files && RefuseForWantOfFiles()) continue;
      if (!ec) {
        Accepted(std::move(socket));
        continue;
      }
      pause.expires_after(kPause);  // for example a connection that was reset in the queue
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    } catch (const std::exception&) {
      short_of_memory = true;
    }
    if (!short_of_memory) continue;
    // This thread also frees memory, so it does other work between two attempts.
    try {
      error_code ec;
      pause.expires_after(kPause);
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    } catch (const std::exception&) {  // no memory for the timer
      poll(nullptr, 0, static_cast<int>(kPause.count()));
    }
  }
}

void Server::Impl::Accepted(tcp::socket socket) {
  opened.fetch_add(1, std::memory_order_relaxed);
  error_code no_peer;
  const auto remote = socket.remote_endpoint(no_peer);
  const std::string peer = no_peer ? std::string() : remote.address().to_string();
  const std::string client = ClientKey(peer);
  const Place place = places.Enter(client);
  if (place == Place::kNone) return RefuseAtOnce(std::move(socket), client);
  std::shared_ptr<Connection> connection;
  try {
    connection = std::make_shared<Connection>(this, std::move(socket), peer, client, place);
  } catch (const std::exception&) {
    places.Leave(client, place);
    throw;
  }
  asio::co_spawn(io, connection->Run(connection), asio::detached);
}

HttpResponse Server::Impl::NoPlace(const std::string& client) {
  return handler->ErrorResponse(
      503,
      places.ClientIsFull(client)
          ? fmt::format("{} connections of this client are open, the limit (--max-connections-per-client)", per_client)
          : fmt::format("{} connections are open, the limit ({})", options.max_connections,
                        room.less ? "ulimit -n" : "--max-connections"));
}

// Refuses one client; for the next one a descriptor may be free again.
bool Server::Impl::RefuseForWantOfFiles() {
  while (!lingering.empty()) CloseRefused();
  if (!spare_file.Give()) {
    spare_file.Take();
    return false;
  }
  error_code ec;
  {
    tcp::socket socket(io);
    acceptor.non_blocking(true, ec);
    acceptor.accept(socket, ec);
    if (!ec) {
      opened.fetch_add(1, std::memory_order_relaxed);
      SayNo(socket,
            handler->ErrorResponse(503, "this process has no file descriptor left for another connection (ulimit -n)"));
    }
  }
  spare_file.Take();
  return !ec;
}

// A closed socket answers further bytes with a reset, which may overtake the 503: the socket stays open for a while.
void Server::Impl::RefuseAtOnce(tcp::socket socket, const std::string& client) {
  SayNo(socket, NoPlace(client));
  if (!lingering.empty() && static_cast<int64_t>(lingering.size()) >= room.beyond / 2) CloseRefused();
  lingering.push_back({std::move(socket), clock.NowNs() + kLingerNs});
}

void Server::Impl::SayNo(tcp::socket& socket, const HttpResponse& response) {
  refused.fetch_add(1, std::memory_order_relaxed);
  Count(response.status);
  const std::string text = HeadText(response, false, response.body.size(), true, false) + response.body;
  error_code ignored;
  socket.non_blocking(true, ignored);
  // Fits into the buffer of a new connection. A client that expects TLS could not read it.
  if (options.tls == nullptr) socket.write_some(asio::buffer(text), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

// Reads pending bytes first, so that closing does not reset the connection.
void Server::Impl::CloseRefused() {
  std::array<char, 16384> sink;
  error_code ignored;
  lingering.front().socket.read_some(asio::buffer(sink), ignored);
  lingering.pop_front();
}

void Server::Impl::ScheduleTick() {
  tick.expires_after(std::chrono::nanoseconds(tick_ns));
  tick.async_wait([this](error_code ec) {
    if (ec) return;
    try {
      Tick();
    } catch (const std::exception&) {
      // For example out of memory: the next tick may succeed.
    }
    ScheduleTick();
  });
}

void Server::Impl::Tick() {
  const TimeNs now_ns = clock.NowNs();
  // A check ends a connection only later, through its coroutine, so the set does not change during this loop.
  for (Connection* connection : connections) connection->CheckDeadline(now_ns);
  while (!lingering.empty() && now_ns >= lingering.front().close_ns) CloseRefused();
  handler->OnTick(now_ns);
}

void Server::Impl::TakeDirty() {
  std::vector<std::shared_ptr<ExchangeBuffer>> ready;
  std::vector<std::function<void()>> calls;
  {
    std::lock_guard lock(wake_list->mutex);
    ready.swap(wake_list->dirty);
    calls.swap(wake_list->calls);
  }
  for (const auto& call : calls) {
    try {
      call();
    } catch (const std::exception&) {
      // Affects only its own connection.
    }
  }
  for (const auto& exchange : ready) {
    if (exchange->on_ready) exchange->on_ready();
  }
}

void Server::Impl::ExchangeEnded() {
  if (exchanges.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::lock_guard lock(idle_mutex);
  idle.notify_all();
}

Result<std::unique_ptr<Server>> Server::Listen(const ServerOptions& wanted, Handler* handler, Clock& clock) {
  ServerOptions options = wanted;
  const int64_t files = options.max_files > 0 ? options.max_files : MostOpenFiles();
  const ConnectionRoom room = RoomWithin(files, options.max_connections, options.files_per_connection);
  options.max_connections = room.connections;
  auto impl = std::make_unique<Impl>(options, room, handler, clock);
  error_code ec;
  tcp::resolver resolver(impl->io);
  const auto found = resolver.resolve(options.host, fmt::format("{}", options.port), tcp::resolver::passive, ec);
  if (ec || found.empty()) {
    return InvalidArgument(
        fmt::format("--host: '{}' is not an address of this machine ({}); give one that is, or 0.0.0.0 for all",
                    options.host, ec.message()),
        "host");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  impl->acceptor.open(endpoint.protocol(), ec);
  if (!ec) impl->acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) impl->acceptor.bind(endpoint, ec);
  if (!ec) impl->acceptor.listen(4096, ec);
  if (ec == asio::error::address_in_use) {
    return Status(
        StatusCode::kUnavailable,
        fmt::format("port {} on {} is in use; stop the process that has it or choose another port with --port",
                    options.port, options.host),
        "port");
  }
  if (ec) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("cannot listen on {} port {}: {}; choose another --host or --port", options.host,
                              options.port, ec.message()),
                  "port");
  }
  const DurationNs shortest =
      std::min({options.idle_timeout_ns, options.header_timeout_ns, options.body_timeout_ns, options.write_timeout_ns});
  impl->tick_ns = options.tick_ns > 0 ? options.tick_ns : std::clamp(shortest / 4, 5 * kMillisecond, kSecond / 4);
  Impl* raw = impl.get();
  impl->wake_list->wake = [raw] { asio::post(raw->io, [raw] { raw->TakeDirty(); }); };
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  Stop();
}

void Server::Stop() {
  {
    std::lock_guard lock(impl_->wake_list->mutex);
    impl_->wake_list->wake = nullptr;
    impl_->wake_list->dirty.clear();
    impl_->wake_list->calls.clear();
  }
  impl_->loop.Stop();
  if (impl_->thread.joinable()) impl_->thread.join();
  for (Connection* connection : impl_->connections) connection->DropExchange();
}

Loop& Server::loop() {
  return impl_->loop;
}

void Server::Start() {
  impl_->ScheduleTick();
  asio::co_spawn(impl_->io, impl_->AcceptLoop(), asio::detached);
  impl_->thread = std::thread([impl = impl_.get()] {
    SetThreadRole(ThreadRole::kService, "tactus-http");
    impl->loop.Run();
  });
}

bool Server::loopback() const {
  error_code ignored;
  const asio::ip::address address = impl_->acceptor.local_endpoint(ignored).address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).is_loopback();
  }
  return address.is_loopback();
}

uint16_t Server::port() const {
  error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

void Server::LimitBodies(int64_t max_body_bytes, int64_t max_body_total_bytes) {
  impl_->max_body_bytes.store(max_body_bytes, std::memory_order_relaxed);
  impl_->bodies->SetLimit(max_body_total_bytes);
}

void Server::SetDraining() {
  impl_->draining.store(true, std::memory_order_relaxed);
}

bool Server::WaitUntilIdle(DurationNs timeout_ns) {
  std::unique_lock lock(impl_->idle_mutex);
  return impl_->idle.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                              [this] { return impl_->exchanges.load(std::memory_order_acquire) == 0; });
}

ServerStats Server::Stats() const {
  ServerStats stats;
  stats.connections = impl_->open.load(std::memory_order_relaxed);
  stats.connections_total = impl_->opened.load(std::memory_order_relaxed);
  stats.connections_refused = impl_->refused.load(std::memory_order_relaxed);
  stats.body_bytes = impl_->bodies->held();
  stats.body_bytes_limit = impl_->bodies->limit();
  stats.bodies_refused = impl_->bodies_refused.load(std::memory_order_relaxed);
  if (const TlsContext* tls = impl_->options.tls.get(); tls != nullptr) {
    stats.tls = true;
    stats.tls_not_after_s = tls->not_after_s();
  }
  stats.tls_failures = impl_->tls_failures.load(std::memory_order_relaxed);
  stats.exchanges = impl_->exchanges.load(std::memory_order_relaxed);
  stats.client_gone = impl_->client_gone.load(std::memory_order_relaxed);
  for (int status = 0; status < kMaxStatus; ++status) {
    const int64_t count = impl_->responses[static_cast<size_t>(status)].load(std::memory_order_relaxed);
    if (count > 0) stats.responses.emplace_back(status, count);
  }
  return stats;
}

}  // namespace tactus::http
