// The client: one coroutine a call, on one io_context.
#include "http/client.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <exception>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "http/framing_limit.h"
#include "http/head_check.h"
#include "http/loop_impl.h"
#include "http/transport.h"

namespace tactus::http {
namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr int kMaxInterimAnswers = 16;        // before the final answer
constexpr uint32_t kMaxHeadBytes = 64 << 10;  // of an answer, as for a request; also its chunk extensions and trailers
constexpr size_t kAnswerReadBytes = 16 << 10;
constexpr int64_t kFetchBytes = 16 << 20;

using AnswerParser = beast::http::response_parser<beast::http::buffer_body>;

// A crashed machine sends nothing: the system probes it after 15 s of silence, and gives up 15 s later.
void NoticeDeadPeer(int socket) {
  const int on = 1, idle_s = 15, interval_s = 5, probes = 3;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

// Whether a kept connection is unchanged since its last answer: not closed by the server, and without unrequested
// bytes, which would be taken for the next answer.
bool IsQuiet(int socket) {
  char byte = 0;
  return recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

// Whether the error is a shortage in this process and not the server's fault.
bool IsShortage(error_code ec) {
  namespace errc = boost::system::errc;
  return ec == errc::too_many_files_open || ec == errc::too_many_files_open_in_system ||
         ec == errc::not_enough_memory || ec == errc::no_buffer_space;
}

struct ClientConnection {
  explicit ClientConnection(asio::io_context& io) : transport(tcp::socket(io)) {}
  tcp::socket& socket() { return transport.socket(); }
  Transport transport;
  beast::flat_buffer buffer;
  TimeNs spare_since_ns = 0;
};

bool BreaksLine(std::string_view text, char least) {
  return std::any_of(text.begin(), text.end(), [least](char c) {
    return (static_cast<unsigned char>(c) < static_cast<unsigned char>(least) && c != '\t') || c == 0x7f;
  });
}

// Refuses a request whose text could be parsed as a different one.
Status CheckRequest(const ClientRequest& request) {
  if (request.method.empty() || BreaksLine(request.method, '!') || !request.path.starts_with('/') ||
      BreaksLine(request.path, '!') || request.path.find('\t') != std::string::npos) {
    return InvalidArgument(
        fmt::format("'{} {}' is not a request: a space or control character, or no '/' at the beginning",
                    Printable(request.method), Printable(request.path)));
  }
  for (const auto& [name, value] : request.headers) {
    if (name.empty() || BreaksLine(name, '!') || name.find('\t') != std::string::npos || BreaksLine(value, ' '))
      return InvalidArgument(fmt::format("header '{}' has a control character", Printable(name)));
  }
  return Status();
}

struct Call {
  Call(asio::io_context& io, ClientRequest r, std::shared_ptr<ResponseHandler> h)
      : request(std::move(r)), handler(std::move(h)), timer(io), resumed(io) {}
  uint64_t id = 0;
  ClientRequest request;
  std::shared_ptr<ResponseHandler> handler;
  std::shared_ptr<ClientConnection> connection;  // while the call has one
  asio::steady_timer timer, resumed;             // the time-out; never expires, cancelled to resume
  HttpResponse response;
  bool cancelled = false, timed_out = false;
  bool paused = false;                      // by OnPiece
  bool got_bytes = false;                   // bytes of the answer have arrived: no retry
  bool keep = false;                        // the connection may serve another call
  bool ended = false;                       // OnDone was called
  asio::steady_timer* resolving = nullptr;  // during name resolution

  void Drop() {
    error_code ignored;
    if (connection) connection->socket().close(ignored);
    if (resolving != nullptr) resolving->cancel();
    resumed.cancel();
  }
};

}  // namespace

struct Client::Impl {
  Impl(Url url, ClientOptions opts, Clock& c, asio::io_context& context)
      : base(std::move(url)), options(opts), clock(c), io(context) {}

  asio::awaitable<void> RunCall(std::shared_ptr<Impl> self, std::shared_ptr<Call> call);
  asio::awaitable<Status> Ask(std::shared_ptr<Call> call);
  asio::awaitable<Status> Attempt(std::shared_ptr<Call> call, std::shared_ptr<ClientConnection> kept);
  asio::awaitable<error_code> Connect(std::shared_ptr<Call> call);
  asio::awaitable<error_code> BeginTls(std::shared_ptr<ClientConnection> connection);
  asio::awaitable<error_code> Resolve(std::shared_ptr<Call> call);
  asio::awaitable<error_code> ReadHead(std::shared_ptr<ClientConnection> connection, AnswerParser* parser);
  asio::awaitable<Status> ReadAnswer(std::shared_ptr<Call> call);
  asio::awaitable<void> WaitUntilResumed(std::shared_ptr<Call> call);
  std::shared_ptr<ClientConnection> TakeSpare();
  void Ended(const std::shared_ptr<Call>& call, const Status& status) noexcept;
  std::string HeadText(const ClientRequest& request) const;
  Status Failed(const Call& call, const char* what, error_code ec) const;

  const Url base;
  const ClientOptions options;
  Clock& clock;
  uint64_t next_id = 1;
  std::map<uint64_t, Call*> calls;
  std::vector<tcp::endpoint> endpoints;
  asio::io_context& io;
  std::vector<std::shared_ptr<ClientConnection>> spare;
  // Allocated in advance, while there is memory.
  const Status broke_off = Internal("the call broke off");
  const Status no_memory{StatusCode::kResourceExhausted, "no memory for the answer"};
};

std::string Client::Impl::HeadText(const ClientRequest& request) const {
  const bool v6 = base.host.find(':') != std::string::npos;
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: {}{}{}:{}\r\n", request.method, request.path, v6 ? "[" : "",
                                 base.host, v6 ? "]" : "", base.port);
  if (!request.text().empty() || request.method == "POST")
    text += fmt::format("Content-Length: {}\r\n", request.text().size());
  for (const auto& [name, value] : request.headers) text += fmt::format("{}: {}\r\n", name, value);
  text += "\r\n";
  return text;
}

Status Client::Impl::Failed(const Call& call, const char* what, error_code ec) const {
  if (call.cancelled) return Status(StatusCode::kCancelled, "cancelled");
  if (call.timed_out) return Status(StatusCode::kDeadlineExceeded, fmt::format("{}: timed out", what));
  if (IsShortage(ec)) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{} ({}:{}): {} here; raise 'ulimit -n' or the limit on memory", what, base.host,
                              base.port, ec.message()));
  }
  std::string why = ec.message();
  if (ec == beast::http::error::header_limit)
    why = fmt::format("its head, or its chunk sizes and trailers, are longer than {} bytes", kMaxHeadBytes);
  if (ec == beast::http::error::body_limit)
    why = fmt::format("its body is longer than {} bytes", options.max_response_bytes);
  return Status(StatusCode::kUnavailable, fmt::format("{} ({}:{}): {}", what, base.host, base.port, why));
}

// Fills `endpoints`. The wait for a name server ends with the call's time-out, although the system continues its query.
asio::awaitable<error_code> Client::Impl::Resolve(std::shared_ptr<Call> call) {
  error_code ec;
  if (const auto address = asio::ip::make_address(base.host, ec); !ec) {
    endpoints = {tcp::endpoint(address, base.port)};
    co_return ec;
  }
  struct Answer {
    explicit Answer(asio::io_context& context) : resolver(context), come(context) {}
    tcp::resolver resolver;
    asio::steady_timer come;
    std::optional<error_code> ec;
    std::vector<tcp::endpoint> found;
  };
  auto answer = std::make_shared<Answer>(io);
  answer->come.expires_at(asio::steady_timer::time_point::max());
  answer->resolver.async_resolve(base.host, fmt::format("{}", base.port),
                                 [answer](error_code resolve_ec, const tcp::resolver::results_type& results) {
                                   answer->ec = resolve_ec;
                                   for (const auto& entry : results) answer->found.push_back(entry.endpoint());
                                   answer->come.cancel();
                                 });
  call->resolving = &answer->come;
  while (!answer->ec && !call->cancelled && !call->timed_out) {
    error_code ignored;
    answer->come.expires_at(asio::steady_timer::time_point::max());
    co_await answer->come.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  call->resolving = nullptr;
  if (!answer->ec) co_return asio::error::operation_aborted;
  if (!*answer->ec) endpoints = answer->found;
  co_return *answer->ec;
}

asio::awaitable<error_code> Client::Impl::Connect(std::shared_ptr<Call> call) {
  error_code ec;
  asio::steady_timer limit(io);
  limit.expires_after(std::chrono::nanoseconds(options.connect_timeout_ns));
  limit.async_wait([weak = std::weak_ptr<Call>(call)](error_code timer_ec) {
    const auto held = weak.lock();
    if (timer_ec || !held) return;
    held->timed_out = true;
    held->Drop();
  });
  if (endpoints.empty()) ec = co_await Resolve(call);
  if (!ec && (call->cancelled || call->timed_out)) ec = asio::error::operation_aborted;
  if (ec) co_return ec;
  call->connection = std::make_shared<ClientConnection>(io);
  std::shared_ptr<ClientConnection> connection = call->connection;
  const std::vector<tcp::endpoint> tried = endpoints;  // another call may change `endpoints` meanwhile
  co_await asio::async_connect(connection->socket(), tried, asio::redirect_error(asio::use_awaitable, ec));
  if (IsShortage(ec)) spare.clear();  // frees the kept connections' resources
  if (ec) endpoints.clear();          // the name may have another address by now
  if (!ec) connection->socket().set_option(tcp::no_delay(true), ec);
  if (!ec) NoticeDeadPeer(connection->socket().native_handle());
  if (!ec && base.tls) ec = co_await BeginTls(connection);
  limit.cancel();
  co_return ec;
}

asio::awaitable<error_code> Client::Impl::BeginTls(std::shared_ptr<ClientConnection> connection) {
  std::shared_ptr<TlsContext> context = options.tls;
  if (context == nullptr) {
    auto system = TlsContext::SystemClient();
    if (system.ok()) context = *system;
  }
  if (context == nullptr || !connection->transport.BeginTls(*context, base.host))
    co_return make_error_code(boost::system::errc::not_enough_memory);
  co_return co_await connection->transport.Handshake();
}

// Does not use Beast's own operation, because an exception of the parser there bypasses the coroutine and ends the
// loop.
asio::awaitable<error_code> Client::Impl::ReadHead(std::shared_ptr<ClientConnection> connection, AnswerParser* parser) {
  error_code ec;
  beast::flat_buffer& buffer = connection->buffer;
  for (;;) {
    if (buffer.size() > 0) {
      buffer.consume(parser->put(buffer.data(), ec));
      if (parser->is_header_done() || (ec && ec != beast::http::error::need_more)) co_return ec;
    }
    const size_t size = co_await connection->transport.ReadSome(buffer.prepare(kAnswerReadBytes), &ec);
    buffer.commit(size);
    if (!ec) continue;
    if (ec == asio::error::eof) ec = beast::http::error::end_of_stream;
    if (ec == beast::http::error::end_of_stream && parser->got_some()) ec = beast::http::error::partial_message;
    co_return ec;
  }
}

asio::awaitable<Status> Client::Impl::ReadAnswer(std::shared_ptr<Call> call) {
  error_code ec;
  std::shared_ptr<ClientConnection> connection = call->connection;
  // Interim answers (100 Continue, 103 Early Hints) precede the final one, each as a separate message.
  std::optional<AnswerParser> message;
  for (int heads = 0;; ++heads) {
    message.emplace();
    message->body_limit(boost::none);  // depends on the head
    message->header_limit(kMaxHeadBytes);
    message->skip(call->request.method == "HEAD");
    ec = co_await ReadHead(connection, &*message);
    if (message->got_some()) call->got_bytes = true;
    if (ec) co_return Failed(*call, "reading the answer's head", ec);
    const int status = static_cast<int>(message->get().result_int());
    if (status / 100 != 1) break;
    if (status == 101 || heads == kMaxInterimAnswers) {
      co_return Status(StatusCode::kUnavailable,
                       status == 101 ? std::string("the server switches to another protocol, which was not requested")
                                     : fmt::format("{} interim answers (1xx) and no final one", heads + 1));
    }
  }
  auto& parser = *message;
  HttpResponse& response = call->response;
  response.status = static_cast<int>(parser.get().result_int());
  response.content_type.clear();
  for (const auto& field : parser.get()) {
    response.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  const bool asked_for_coding = FindHeader(call->request.headers, "Accept-Encoding") != nullptr;
  if (const std::string wrong =
          CheckAnswerHead(response.status, response.headers, parser.get().version() < 11, asked_for_coding);
      !wrong.empty()) {
    co_return Status(StatusCode::kUnavailable,
                     fmt::format("the answer's head ({}:{}): {}", base.host, base.port, wrong));
  }
  if (const std::string* type = response.Find("Content-Type")) response.content_type = *type;
  call->request.counted.reset();  // the body is not sent again
  if (call->cancelled) co_return Failed(*call, "", ec);
  call->handler->OnHead(response.status, response.headers, clock.NowNs());
  const bool events = response.status / 100 == 2 && response.content_type.rfind("text/event-stream", 0) == 0;
  const auto most = static_cast<uint64_t>(options.max_response_bytes);
  const bool held = !events && !options.pieces;
  if (held && parser.content_length().value_or(0) > most)
    co_return Failed(*call, "reading the answer", beast::http::error::body_limit);
  SseParser sse;
  TimeNs now_ns = clock.NowNs();
  const SseParser::OnData on_data = [&call, &now_ns](std::string_view data) { call->handler->OnEvent(data, now_ns); };
  beast::flat_buffer& buffer = connection->buffer;
  FramingLimit framing(kMaxHeadBytes);
  int64_t body_bytes = 0;
  std::array<char, kAnswerReadBytes> piece;
  parser.eager(true);
  while (!parser.is_done()) {
    if (call->cancelled || call->timed_out) co_return Failed(*call, "reading the answer", ec);
    if (buffer.size() > 0) {
      parser.get().body().data = piece.data();
      parser.get().body().size = piece.size();
      const size_t parsed = parser.put(buffer.data(), ec);
      buffer.consume(parsed);
      if (ec == beast::http::error::need_more || ec == beast::http::error::need_buffer) ec = {};
      const std::string_view bytes(piece.data(), piece.size() - parser.get().body().size);
      body_bytes += static_cast<int64_t>(bytes.size());
      if (!ec && !framing.Add(parsed, body_bytes)) ec = beast::http::error::header_limit;
      if (!ec && held && static_cast<uint64_t>(body_bytes) > most) ec = beast::http::error::body_limit;
      if (options.pieces)
        call->paused = !bytes.empty() && !call->handler->OnPiece(bytes);
      else if (held)
        response.body += bytes;
      else if (!sse.Feed(bytes, on_data))
        co_return Status(StatusCode::kUnavailable,
                         fmt::format("an event of more than {} bytes", SseParser::kMostEventBytes));
      if (call->paused) co_await WaitUntilResumed(call);
      if (call->cancelled || call->timed_out || ec) co_return Failed(*call, "reading the answer", ec);
      if (!bytes.empty() || parser.is_done()) continue;
    }
    const size_t wanted = framing.Room(buffer.size(), kAnswerReadBytes);
    if (wanted == 0) co_return Failed(*call, "reading the answer", beast::http::error::header_limit);
    const size_t size = co_await connection->transport.ReadSome(buffer.prepare(wanted), &ec);
    now_ns = clock.NowNs();
    buffer.commit(size);
    if (ec == asio::error::eof) parser.put_eof(ec);
    if (ec) co_return Failed(*call, "reading the answer", ec);
  }
  call->keep = parser.get().keep_alive() && buffer.size() == 0;
  co_return Status();
}

asio::awaitable<void> Client::Impl::WaitUntilResumed(std::shared_ptr<Call> call) {
  error_code ignored;
  while (call->paused && !call->cancelled && !call->timed_out) {
    call->resumed.expires_at(asio::steady_timer::time_point::max());
    co_await call->resumed.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

// The most recently used connection that is still usable.
std::shared_ptr<ClientConnection> Client::Impl::TakeSpare() {
  while (!spare.empty()) {
    std::shared_ptr<ClientConnection> kept = std::move(spare.back());
    spare.pop_back();
    if (IsQuiet(kept->socket().native_handle())) return kept;
  }
  return nullptr;
}

// `kept`: the connection to use; null: a new one.
asio::awaitable<Status> Client::Impl::Attempt(std::shared_ptr<Call> call, std::shared_ptr<ClientConnection> kept) {
  error_code ec;
  call->connection = std::move(kept);
  if (!call->connection) {
    ec = co_await Connect(call);
    if (ec) co_return Failed(*call, "cannot connect", ec);
  }
  std::shared_ptr<ClientConnection> connection = call->connection;
  const std::string head = HeadText(call->request);
  const std::string_view body = call->request.text();
  co_await connection->transport.WriteAll(head, body, &ec);
  // The server may refuse before it has read the whole body: read the answer even then.
  const bool write_failed = static_cast<bool>(ec);
  Status status = co_await ReadAnswer(call);
  if (write_failed) call->keep = false;
  co_return status;
}

asio::awaitable<Status> Client::Impl::Ask(std::shared_ptr<Call> call) {
  Status status;
  if (call->cancelled) co_return Failed(*call, "", {});  // before it started
  status = CheckRequest(call->request);
  if (!status.ok()) co_return status;
  if (options.timeout_ns > 0) {
    call->timer.expires_after(std::chrono::nanoseconds(options.timeout_ns));
    call->timer.async_wait([weak = std::weak_ptr<Call>(call)](error_code ec) {
      const auto held = weak.lock();
      if (ec || !held) return;
      held->timed_out = true;
      held->Drop();
    });
  }
  std::shared_ptr<ClientConnection> kept = TakeSpare();
  const bool reuse = kept != nullptr;
  status = co_await Attempt(call, kept);
  // The server may have closed a kept connection meanwhile: retry once, on a new one.
  if (!status.ok() && reuse && !call->got_bytes && !call->cancelled && !call->timed_out) {
    status = co_await Attempt(call, nullptr);
  }
  co_return status;
}

asio::awaitable<void> Client::Impl::RunCall(std::shared_ptr<Impl> self, std::shared_ptr<Call> call) {
  // Ends the call even if this frame is destroyed before its end.
  struct Ending {
    std::shared_ptr<Impl> impl;
    std::shared_ptr<Call> call;
    ~Ending() { impl->Ended(call, impl->broke_off); }
  };
  const Ending ending{self, call};
  Status status;
  try {
    // TLS may write and read without a wait, and no handler is called within Send.
    if (base.tls) co_await asio::post(io, asio::use_awaitable);
    status = co_await Ask(call);
  } catch (const std::bad_alloc&) {
    Ended(call, no_memory);
    co_return;
  } catch (const std::exception& e) {
    status = Status(StatusCode::kUnavailable, fmt::format("reading the answer: {}", Printable(e.what())));
  }
  if (status.ok() && call->keep && call->connection->socket().is_open()) {
    call->connection->spare_since_ns = clock.NowNs();
    spare.push_back(call->connection);
    call->connection = nullptr;
  }
  Ended(call, status);
}

void Client::Impl::Ended(const std::shared_ptr<Call>& call, const Status& status) noexcept {
  if (std::exchange(call->ended, true)) return;
  calls.erase(call->id);
  try {
    call->timer.cancel();
    call->Drop();
    if (call->handler) call->handler->OnDone(status, call->response, clock.NowNs());
  } catch (...) {
    // An exception of OnDone itself: nothing is left to report.
  }
}

Client::Client(Url base, ClientOptions options, Clock& clock)
    : own_loop_(std::make_unique<Loop>()),
      loop_(*own_loop_),
      impl_(std::make_shared<Impl>(std::move(base), options, clock, loop_.impl().io)) {}

Client::Client(Url base, ClientOptions options, Clock& clock, Loop& loop)
    : loop_(loop), impl_(std::make_shared<Impl>(std::move(base), options, clock, loop_.impl().io)) {}

// The frames of calls end later, in the loop, without callbacks.
Client::~Client() {
  for (const auto& [id, call] : impl_->calls) {
    call->cancelled = true;
    call->handler = nullptr;
    call->timer.cancel();
    call->Drop();
  }
}

Client::CallId Client::Send(ClientRequest request, std::shared_ptr<ResponseHandler> handler) {
  auto call = std::make_shared<Call>(impl_->io, std::move(request), std::move(handler));
  call->id = impl_->next_id++;
  impl_->calls[call->id] = call.get();
  try {
    asio::co_spawn(impl_->io, impl_->RunCall(impl_, call), asio::detached);
  } catch (...) {  // for example out of memory
    impl_->calls.erase(call->id);
    throw;
  }
  return call->id;
}

void Client::Cancel(CallId id) {
  const auto found = impl_->calls.find(id);
  if (found == impl_->calls.end()) return;
  found->second->cancelled = true;
  found->second->Drop();
}

void Client::Resume(CallId id) {
  const auto found = impl_->calls.find(id);
  if (found == impl_->calls.end()) return;
  found->second->paused = false;
  found->second->resumed.cancel();
}

void Client::At(TimeNs when_ns, std::function<void()> action) {
  loop_.After(when_ns - impl_->clock.NowNs(), std::move(action));
}

void Client::Run() {
  loop_.Run();
}

void Client::Stop() {
  loop_.Stop();
}

// `spare` is ordered by last use, the longest idle first.
void Client::CloseIdle(DurationNs idle_ns) {
  const TimeNs since_ns = impl_->clock.NowNs() - idle_ns;
  std::vector<std::shared_ptr<ClientConnection>>& spare = impl_->spare;
  const auto used =
      std::find_if(spare.begin(), spare.end(), [&](const auto& c) { return c->spare_since_ns > since_ns; });
  spare.erase(spare.begin(), used);
}

int64_t Client::in_flight() const {
  return static_cast<int64_t>(impl_->calls.size());
}

Result<HttpResponse> Fetch(const Url& base, ClientRequest request, DurationNs timeout_ns, Clock& clock) {
  struct Keep final : ResponseHandler {
    void OnDone(const Status& s, const HttpResponse& r, TimeNs) override {
      status = s;
      response = r;
    }
    Status status = Internal("no answer");
    HttpResponse response;
  };
  ClientOptions options;
  options.timeout_ns = timeout_ns;
  options.max_response_bytes = kFetchBytes;
  auto keep = std::make_shared<Keep>();
  Client client(base, options, clock);
  client.Send(std::move(request), keep);
  client.Run();
  if (!keep->status.ok()) return keep->status;
  return std::move(keep->response);
}

}  // namespace tactus::http
