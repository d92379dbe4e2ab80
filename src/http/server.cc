// Listener and connections. Everything that touches a socket runs on the one io thread, so that connections need no
// locks; producers reach it through ExchangeBuffer alone. One of the two files that include Beast.
#include "http/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "base/thread_role.h"
#include "http/exchange.h"

namespace tactus::http {
namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr size_t kPipelineBytes = 64 << 10;  // read ahead of the exchange being answered
constexpr int64_t kLingerBytes = 4 << 20;    // of a refused body, swallowed so that the client sees the answer
constexpr DurationNs kLingerNs = 2 * kSecond;
constexpr int64_t kRefusalSlots = 256;  // connections beyond the limit that still get a 503
constexpr int kMaxStatus = 600;

std::string SafeHeaderText(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

}  // namespace

class Connection;

struct Server::Impl {
  Impl(const ServerOptions& opts, Handler* h, Clock& c) : options(opts), handler(h), clock(c) {}

  asio::awaitable<void> AcceptLoop();
  void ScheduleTick();
  void Tick();
  void TakeDirty();
  void ExchangeEnded();
  void Count(int status) {
    responses[static_cast<size_t>(std::clamp(status, 0, kMaxStatus - 1))].fetch_add(1, std::memory_order_relaxed);
  }

  const ServerOptions options;
  Handler* const handler;
  Clock& clock;
  DurationNs tick_ns = kSecond / 4;
  std::unordered_set<Connection*> connections;  // io thread; before `io`: coroutine frames that die with it unregister
  std::shared_ptr<WakeList> wake_list = std::make_shared<WakeList>();
  std::atomic<bool> draining{false};
  std::atomic<int64_t> open{0}, opened{0}, refused{0}, exchanges{0}, client_gone{0};
  std::array<std::atomic<int64_t>, kMaxStatus> responses{};
  std::mutex idle_mutex;
  std::condition_variable idle;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer tick{io};
  std::thread thread;
};

// One client connection. Lives in the coroutine that Start spawns.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Server::Impl* server, tcp::socket socket, bool refuse)
      : server_(*server), socket_(std::move(socket)), wake_(server_.io), refuse_(refuse) {
    server_.connections.insert(this);
    server_.open.fetch_add(1, std::memory_order_relaxed);
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.non_blocking(true, ignored);
    const auto peer = socket_.remote_endpoint(ignored);
    if (!ignored) peer_ = peer.address().to_string();
  }
  ~Connection() {
    server_.connections.erase(this);
    server_.open.fetch_sub(1, std::memory_order_relaxed);
  }

  asio::awaitable<void> Run(std::shared_ptr<Connection> self);
  void CheckDeadline(TimeNs now_ns);
  // The client has gone, or counts as gone: what is being made for it stops.
  void MarkGone();
  void DropExchange() {
    if (exchange_) exchange_->ClientGone();
  }

 private:
  enum class Phase { kNone, kIdle, kHeader, kBody, kWrite, kLinger };
  using Parser = beast::http::request_parser<beast::http::string_body>;

  asio::awaitable<bool> ServeOne();
  asio::awaitable<bool> ReadFailed(error_code ec);
  asio::awaitable<bool> Answer(std::shared_ptr<ExchangeBuffer> exchange);
  asio::awaitable<bool> WriteAll(std::string bytes);
  asio::awaitable<void> Linger();
  asio::awaitable<bool> WriteResponse(HttpResponse response);
  void ReadHead(const Parser& parser);
  std::string HeadText(const HttpResponse& head, bool chunked, size_t body_bytes) const;
  void Watch();
  void SetPhase(Phase phase, DurationNs limit_ns) {
    phase_ = phase;
    deadline_ns_ = phase == Phase::kNone ? kNever : server_.clock.NowNs() + limit_ns;
  }
  void Close() {
    error_code ignored;
    socket_.close(ignored);
  }

  Server::Impl& server_;
  tcp::socket socket_;
  asio::steady_timer wake_;  // never expires; cancelled to wake the coroutine
  beast::flat_buffer buffer_;
  std::string peer_;
  HttpRequest head_;  // being read
  std::shared_ptr<ExchangeBuffer> exchange_;
  Phase phase_ = Phase::kNone;
  TimeNs deadline_ns_ = kNever;
  const bool refuse_;
  bool timed_out_ = false, gone_ = false, linger_ = false, served_ = false;
  bool keep_alive_ = true, http10_ = false, head_only_ = false;
  uint64_t watch_ = 0;  // generation; an older watcher's completion means nothing
};

asio::awaitable<void> Connection::Run(std::shared_ptr<Connection> self) {
  (void)self;  // held by this frame
  try {
    bool again = true;
    if (refuse_) {
      again = false;
      keep_alive_ = false;
      linger_ = co_await WriteResponse(server_.handler->ErrorResponse(
          503, fmt::format("{} connections are open, the limit (--max-connections)", server_.options.max_connections)));
    }
    while (again) again = co_await ServeOne();
    if (linger_) co_await Linger();
  } catch (const std::exception&) {
    // A failed allocation, or a handler that threw: this connection ends, the others go on.
    if (exchange_) {
      exchange_->on_ready = nullptr;
      DropExchange();
      exchange_.reset();
      server_.ExchangeEnded();
    }
  }
  Close();
}

asio::awaitable<bool> Connection::ServeOne() {
  error_code ec;
  timed_out_ = false;
  if (buffer_.size() == 0) {
    if (served_ && server_.draining.load(std::memory_order_relaxed)) co_return false;
    SetPhase(Phase::kIdle, server_.options.idle_timeout_ns);
    co_await socket_.async_wait(tcp::socket::wait_read, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return false;
  }
  SetPhase(Phase::kHeader, server_.options.header_timeout_ns);
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(server_.options.max_header_bytes));
  parser.body_limit(static_cast<uint64_t>(server_.options.max_body_bytes));
  co_await beast::http::async_read_header(socket_, buffer_, parser, asio::redirect_error(asio::use_awaitable, ec));
  if (ec) co_return co_await ReadFailed(ec);
  ReadHead(parser);
  served_ = true;
  std::optional<HttpResponse> early = server_.handler->CheckHead(head_);
  const std::string* expect = head_.Find("Expect");
  const bool expects_continue = expect != nullptr && EqualsIgnoreCase(*expect, "100-continue");
  if (!early && expect != nullptr && !expects_continue) {
    early = server_.handler->ErrorResponse(417, "Expect: only 100-continue is understood");
  }
  if (early) {
    linger_ = !parser.is_done();  // the body was not read: what follows on this connection is not a request
    if (linger_) keep_alive_ = false;
    const bool written = co_await WriteResponse(std::move(*early));
    if (!written) co_return false;
    co_return keep_alive_;
  }
  if (!parser.is_done()) {
    if (expects_continue && !http10_) {
      const bool written = co_await WriteAll("HTTP/1.1 100 Continue\r\n\r\n");
      if (!written) co_return false;
    }
    SetPhase(Phase::kBody, server_.options.body_timeout_ns);
    co_await beast::http::async_read(socket_, buffer_, parser, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return co_await ReadFailed(ec);
  }
  SetPhase(Phase::kNone, 0);
  head_.body = std::move(parser.get().body());
  co_return co_await Answer(std::make_shared<ExchangeBuffer>(std::move(head_), server_.wake_list));
}

void Connection::ReadHead(const Parser& parser) {
  const auto& message = parser.get();
  head_ = HttpRequest();
  head_.method = std::string(message.method_string());
  head_.target = std::string(message.target());
  std::string_view path = head_.target;
  if (path.substr(0, 7) == "http://") {  // absolute form, as proxies send it
    const size_t slash = path.find('/', 7);
    path = slash == std::string_view::npos ? std::string_view("/") : path.substr(slash);
  }
  head_.path = std::string(path.substr(0, path.find_first_of("?#")));
  for (const auto& field : message)
    head_.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  head_.peer = peer_;
  http10_ = message.version() < 11;
  head_only_ = message.method() == beast::http::verb::head;
  keep_alive_ = message.keep_alive();
}

// What a failed read means to the client. False always: nothing more can be read from this connection.
asio::awaitable<bool> Connection::ReadFailed(error_code ec) {
  namespace bh = beast::http;
  int status = 0;
  std::string message;
  const char* part = phase_ == Phase::kBody ? "body" : "headers";
  if (timed_out_) {
    status = 408;
    const DurationNs limit =
        phase_ == Phase::kBody ? server_.options.body_timeout_ns : server_.options.header_timeout_ns;
    message = fmt::format("the request's {} did not arrive within {} ms", part, limit / kMillisecond);
  } else if (ec == bh::error::body_limit) {
    status = 413;
    message = fmt::format("the request's body is larger than {} bytes (--max-body)", server_.options.max_body_bytes);
  } else if (ec == bh::error::header_limit || ec == bh::error::buffer_overflow) {
    status = 431;
    message = fmt::format("the request's headers are larger than {} bytes", server_.options.max_header_bytes);
  } else if (ec.category() == make_error_code(bh::error::bad_method).category() && ec != bh::error::end_of_stream &&
             ec != bh::error::partial_message) {
    status = 400;
    message = fmt::format("malformed HTTP request: {}", ec.message());
  }
  if (status == 0) co_return false;  // the client has gone
  keep_alive_ = false;
  head_only_ = false;
  linger_ = co_await WriteResponse(server_.handler->ErrorResponse(status, message));
  co_return false;
}

// Lets the handler answer and writes what it makes, watching for the client's leave meanwhile.
asio::awaitable<bool> Connection::Answer(std::shared_ptr<ExchangeBuffer> exchange) {
  exchange_ = exchange;
  server_.exchanges.fetch_add(1, std::memory_order_acq_rel);
  exchange->on_ready = [this] { wake_.cancel(); };
  Watch();
  server_.handler->Handle(exchange);
  bool chunked = false;
  ExchangeBuffer::Output output;
  while (!gone_) {
    exchange->Take(&output);
    std::string text;
    if (output.has_head) {
      chunked = output.streaming && !http10_;
      if (output.streaming && http10_) keep_alive_ = false;  // the end of the body is the end of the connection
      server_.Count(output.head.status);
      text = HeadText(output.head, chunked, output.head.body.size());
      if (!head_only_) text += output.head.body;
    }
    if (!output.bytes.empty() && !head_only_) {
      if (chunked) text += fmt::format("{:x}\r\n", output.bytes.size());
      text += output.bytes;
      if (chunked) text += "\r\n";
    }
    if (output.ended && chunked && !head_only_) text += "0\r\n\r\n";
    if (!text.empty()) {
      const bool written = co_await WriteAll(std::move(text));
      if (!written) MarkGone();
    }
    if (output.ended) break;
    if (!output.has_head && output.bytes.empty() && !gone_) {
      error_code ignored;
      wake_.expires_at(asio::steady_timer::time_point::max());
      co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  }
  exchange->on_ready = nullptr;
  exchange_.reset();
  ++watch_;
  error_code ignored;
  if (socket_.is_open()) socket_.cancel(ignored);
  server_.ExchangeEnded();
  co_return !gone_ && keep_alive_ && !server_.draining.load(std::memory_order_relaxed);
}

// Notices that the client closes while its answer is being made. What arrives meanwhile (pipelined requests) is kept
// for later, up to a limit; beyond it the socket's own buffer holds the client back.
void Connection::Watch() {
  if (buffer_.size() >= kPipelineBytes) return;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this(), generation = ++watch_](error_code ec) {
    if (ec || generation != self->watch_ || !self->exchange_) return;
    const size_t size = self->socket_.read_some(self->buffer_.prepare(4096), ec);
    self->buffer_.commit(size);
    if (ec && ec != asio::error::would_block && ec != asio::error::try_again) return self->MarkGone();
    self->Watch();
  });
}

void Connection::MarkGone() {
  if (gone_) return;
  gone_ = true;
  if (exchange_) {
    server_.client_gone.fetch_add(1, std::memory_order_relaxed);
    exchange_->ClientGone();
  }
  wake_.cancel();
  Close();
}

std::string Connection::HeadText(const HttpResponse& head, bool chunked, size_t body_bytes) const {
  const bool close = !keep_alive_ || server_.draining.load(std::memory_order_relaxed);
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: tactus\r\n", head.status, ReasonPhrase(head.status));
  if (!head.content_type.empty() && head.status != 204) text += fmt::format("Content-Type: {}\r\n", head.content_type);
  for (const auto& [name, value] : head.headers) text += fmt::format("{}: {}\r\n", name, SafeHeaderText(value));
  if (chunked)
    text += "Transfer-Encoding: chunked\r\n";
  else if (head.status != 204 && (body_bytes > 0 || keep_alive_))
    text += fmt::format("Content-Length: {}\r\n", body_bytes);
  text += close ? "Connection: close\r\n\r\n" : (http10_ ? "Connection: keep-alive\r\n\r\n" : "\r\n");
  return text;
}

asio::awaitable<bool> Connection::WriteResponse(HttpResponse response) {
  server_.Count(response.status);
  std::string text = HeadText(response, false, response.body.size());
  if (!head_only_) text += response.body;
  const bool written = co_await WriteAll(std::move(text));
  co_return written;
}

asio::awaitable<bool> Connection::WriteAll(std::string bytes) {
  size_t done = 0;
  error_code ec;
  while (done < bytes.size() && !gone_) {
    SetPhase(Phase::kWrite, server_.options.write_timeout_ns);
    done += co_await socket_.async_write_some(asio::buffer(bytes.data() + done, bytes.size() - done),
                                              asio::redirect_error(asio::use_awaitable, ec));
    if (ec) break;
  }
  SetPhase(Phase::kNone, 0);
  co_return done == bytes.size();
}

// Closing with unread input would reset the connection and may take the answer with it: say that we are done and
// swallow what the client still sends, within limits.
asio::awaitable<void> Connection::Linger() {
  error_code ec;
  socket_.shutdown(tcp::socket::shutdown_send, ec);
  SetPhase(Phase::kLinger, kLingerNs);
  std::array<char, 16384> sink;
  int64_t total = 0;
  while (!ec && total < kLingerBytes) {
    total += static_cast<int64_t>(
        co_await socket_.async_read_some(asio::buffer(sink), asio::redirect_error(asio::use_awaitable, ec)));
  }
}

void Connection::CheckDeadline(TimeNs now_ns) {
  if (now_ns < deadline_ns_) return;
  deadline_ns_ = kNever;
  error_code ignored;
  switch (phase_) {
    case Phase::kHeader:
    case Phase::kBody:
      timed_out_ = true;
      socket_.cancel(ignored);
      return;
    case Phase::kWrite:
      return MarkGone();
    default:
      return Close();
  }
}

asio::awaitable<void> Server::Impl::AcceptLoop() {
  error_code ec;
  for (;;) {
    tcp::socket socket(io);
    co_await acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, ec));
    if (ec == asio::error::operation_aborted) co_return;
    if (ec) {  // out of file descriptors, or a connection that died in the queue
      asio::steady_timer pause(io);
      pause.expires_after(std::chrono::milliseconds(20));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
      continue;
    }
    opened.fetch_add(1, std::memory_order_relaxed);
    const int64_t now_open = static_cast<int64_t>(connections.size());
    const bool refuse = now_open >= options.max_connections;
    if (refuse) refused.fetch_add(1, std::memory_order_relaxed);
    if (now_open >= options.max_connections + kRefusalSlots) continue;  // closes the socket
    auto connection = std::make_shared<Connection>(this, std::move(socket), refuse);
    asio::co_spawn(io, connection->Run(connection), asio::detached);
  }
}

void Server::Impl::ScheduleTick() {
  tick.expires_after(std::chrono::nanoseconds(tick_ns));
  tick.async_wait([this](error_code ec) {
    if (ec) return;
    Tick();
    ScheduleTick();
  });
}

void Server::Impl::Tick() {
  const TimeNs now_ns = clock.NowNs();
  // A check may end a connection only through its coroutine, later: the set does not change under us.
  for (Connection* connection : connections) connection->CheckDeadline(now_ns);
  handler->OnTick(now_ns);
}

void Server::Impl::TakeDirty() {
  std::vector<std::shared_ptr<ExchangeBuffer>> ready;
  {
    std::lock_guard lock(wake_list->mutex);
    ready.swap(wake_list->dirty);
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

Result<std::unique_ptr<Server>> Server::Listen(const ServerOptions& options, Handler* handler, Clock& clock) {
  auto impl = std::make_unique<Impl>(options, handler, clock);
  error_code ec;
  tcp::resolver resolver(impl->io);
  const auto found = resolver.resolve(options.host, fmt::format("{}", options.port), tcp::resolver::passive, ec);
  if (ec || found.empty()) {
    return InvalidArgument(fmt::format("--host: '{}' is no address of this machine ({})", options.host, ec.message()),
                           "host");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  impl->acceptor.open(endpoint.protocol(), ec);
  if (!ec) impl->acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) impl->acceptor.bind(endpoint, ec);
  if (!ec) impl->acceptor.listen(4096, ec);
  if (ec == asio::error::address_in_use) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("port {} on {} is in use; stop who has it or choose another with --port", options.port,
                              options.host),
                  "port");
  }
  if (ec) {
    return Status(StatusCode::kUnavailable,
                  fmt::format("cannot listen on {} port {}: {}", options.host, options.port, ec.message()), "port");
  }
  const DurationNs shortest =
      std::min({options.idle_timeout_ns, options.header_timeout_ns, options.body_timeout_ns, options.write_timeout_ns});
  impl->tick_ns = std::clamp(shortest / 4, 5 * kMillisecond, kSecond / 4);
  Impl* raw = impl.get();
  impl->wake_list->wake = [raw] { asio::post(raw->io, [raw] { raw->TakeDirty(); }); };
  impl->ScheduleTick();
  asio::co_spawn(impl->io, impl->AcceptLoop(), asio::detached);
  impl->thread = std::thread([raw] {
    SetThreadRole(ThreadRole::kService, "tactus-http");
    raw->io.run();
  });
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
  {
    std::lock_guard lock(impl_->wake_list->mutex);
    impl_->wake_list->wake = nullptr;
    impl_->wake_list->dirty.clear();
  }
  impl_->io.stop();
  impl_->thread.join();
  for (Connection* connection : impl_->connections) connection->DropExchange();
}

uint16_t Server::port() const {
  error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
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
  stats.exchanges = impl_->exchanges.load(std::memory_order_relaxed);
  stats.client_gone = impl_->client_gone.load(std::memory_order_relaxed);
  for (int status = 0; status < kMaxStatus; ++status) {
    const int64_t count = impl_->responses[static_cast<size_t>(status)].load(std::memory_order_relaxed);
    if (count > 0) stats.responses.emplace_back(status, count);
  }
  return stats;
}

}  // namespace tactus::http
