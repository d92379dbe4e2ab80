#include "http/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "http/framing_limit.h"
#include "http/head_check.h"

namespace tactus::http {
namespace bh = boost::beast::http;

namespace {

constexpr size_t kPipelineBytes = 64 << 10;       // read ahead of the exchange being answered
constexpr DurationNs kPipelineGraceNs = kSecond;  // a full read-ahead waits for this time, then it is dropped
constexpr int64_t kLingerBytes = 4 << 20;         // read and dropped, so that the client gets the answer or its end
constexpr DurationNs kProbeHeadNs = 2 * kSecond;  // for the one request of a kProbeOnly connection
constexpr int64_t kTimedBytes = 1 << 20;          // a receiver's body must deliver this much in each body_timeout_ns
constexpr size_t kReadBytes = 64 << 10, kSmallReadBytes = 4 << 10;
constexpr size_t kKeptBufferBytes = 16 << 10;  // of a connection that waits for its answer

std::string SafeHeaderText(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

}  // namespace

std::string HeadText(const HttpResponse& head, bool chunked, size_t body_bytes, bool close, bool http10) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nServer: tactus\r\n", head.status, ReasonPhrase(head.status));
  const bool bodiless = head.status == 204 || head.status == 304;
  if (!head.content_type.empty() && !bodiless) text += fmt::format("Content-Type: {}\r\n", head.content_type);
  for (const auto& [name, value] : head.headers) text += fmt::format("{}: {}\r\n", name, SafeHeaderText(value));
  if (chunked)
    text += "Transfer-Encoding: chunked\r\n";
  else if (!bodiless && (body_bytes > 0 || !close))
    text += fmt::format("Content-Length: {}\r\n", body_bytes);
  text += close ? "Connection: close\r\n\r\n" : (http10 ? "Connection: keep-alive\r\n\r\n" : "\r\n");
  return text;
}

Connection::Connection(Server::Impl* server, tcp::socket socket, std::string peer, std::string client, Place place)
    : server_(*server),
      transport_(std::move(socket)),
      wake_(server_.io),
      peer_(std::move(peer)),
      client_(std::move(client)),
      place_(place) {
  server_.connections.insert(this);
  server_.open.fetch_add(1, std::memory_order_relaxed);
  error_code ignored;
  transport_.socket().set_option(tcp::no_delay(true), ignored);
  transport_.socket().non_blocking(true, ignored);
}

Connection::~Connection() {
  server_.connections.erase(this);
  server_.places.Leave(client_, place_);
  server_.open.fetch_sub(1, std::memory_order_relaxed);
}

asio::awaitable<void> Connection::Run(std::shared_ptr<Connection> self) {
  (void)self;  // kept alive by this frame
  try {
    bool again = server_.options.tls == nullptr;
    if (!again) again = co_await Handshake();
    while (again) again = co_await ServeOne();
    if (linger_)
      co_await Linger();
    else if (!gone_ && !aborted_)
      transport_.ShutDownSend();  // without it a client cannot tell an end from a cut
  } catch (const std::exception&) {
    // A failed allocation or a handler's exception ends only this connection.
    if (exchange_) {
      exchange_->on_ready = nullptr;
      DropExchange();
      exchange_.reset();
      server_.ExchangeEnded();
    }
  }
  Close();
}

asio::awaitable<bool> Connection::Handshake() {
  SetPhase(Phase::kHeader, place_ == Place::kProbeOnly ? std::min(kProbeHeadNs, server_.options.header_timeout_ns)
                                                       : server_.options.header_timeout_ns);
  if (!transport_.BeginTls(*server_.options.tls, {})) co_return false;
  const error_code ec = co_await transport_.Handshake();
  SetPhase(Phase::kNone, 0);
  if (!ec && !timed_out_) co_return true;
  server_.tls_failures.fetch_add(1, std::memory_order_relaxed);
  if (!transport_.DropTlsIfHttp()) co_return false;
  keep_alive_ = false;
  HttpResponse response =
      server_.handler->ErrorResponse(400, "this port serves HTTPS alone; use https:// in the address");
  linger_ = co_await WriteResponse(std::move(response));
  co_return false;
}

// Does not use Beast's own operation, because an exception of the parser there bypasses the coroutine.
asio::awaitable<error_code> Connection::ReadHeader(Parser* parser) {
  error_code ec;
  for (;;) {
    if (buffer_.size() > 0) {
      buffer_.consume(parser->put(buffer_.data(), ec));
      if (parser->is_header_done() || (ec && ec != bh::error::need_more)) co_return ec;
    }
    const size_t size = co_await transport_.ReadSome(buffer_.prepare(kSmallReadBytes), &ec);
    buffer_.commit(size);
    if (!ec) continue;
    if (ec == asio::error::eof) ec = parser->got_some() ? bh::error::partial_message : bh::error::end_of_stream;
    co_return ec;
  }
}

asio::awaitable<bool> Connection::ServeOne() {
  error_code ec;
  timed_out_ = false;
  answer_bytes_ = first_byte_ns_ = 0;
  answer_id_.clear();
  if (place_ == Place::kProbeOnly) {
    SetPhase(Phase::kHeader, std::min(kProbeHeadNs, server_.options.header_timeout_ns));
  } else {
    if (buffer_.size() == 0) {
      if (served_ && server_.draining.load(std::memory_order_relaxed)) co_return false;
      SetPhase(Phase::kIdle, server_.options.idle_timeout_ns);
      if (!transport_.has_decrypted()) {
        co_await transport_.socket().async_wait(tcp::socket::wait_read, asio::redirect_error(asio::use_awaitable, ec));
      }
      if (ec) co_return false;
    }
    SetPhase(Phase::kHeader, server_.options.header_timeout_ns);
  }
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(server_.options.max_header_bytes));
  parser.body_limit(boost::none);  // depends on the head
  parser.get().body() = Body(server_.bodies);
  head_ = HttpRequest();
  started_ns_ = server_.clock.NowNs();
  ec = co_await ReadHeader(&parser);
  if (ec) co_return co_await ReadFailed(ec);
  started_ns_ = server_.clock.NowNs();
  ReadHead(parser);
  served_ = true;
  std::optional<HttpResponse> early = EarlyAnswer(parser);
  if (early) {
    const int status = early->status;
    const bool written = co_await WriteResponse(std::move(*early));
    Report(head_, status, written, nullptr);
    if (!written) co_return false;
    co_return keep_alive_;
  }
  const std::shared_ptr<BodyReceiver> receiver = server_.handler->ReceiveBody(head_);
  LimitBody(&parser, receiver.get());
  if (!parser.is_done()) {
    SetPhase(Phase::kBody, server_.options.body_timeout_ns);
    const bool too_large = parser.content_length().value_or(0) > static_cast<uint64_t>(max_body_bytes_);
    ec = too_large ? make_error_code(bh::error::body_limit) : error_code();
    if (ec) co_return co_await ReadFailed(ec);
    if (head_.Find("Expect") != nullptr && !http10_) {
      const bool written = co_await WriteAll("HTTP/1.1 100 Continue\r\n\r\n");
      if (!written) co_return false;
      answer_bytes_ = first_byte_ns_ = 0;
    }
    SetPhase(Phase::kBody, server_.options.body_timeout_ns);
    ec = co_await ReadBody(&parser, receiver.get());
    if (ec) co_return co_await ReadFailed(ec);
  }
  SetPhase(Phase::kNone, 0);
  if (buffer_.size() == 0 && buffer_.capacity() > kKeptBufferBytes) buffer_.shrink_to_fit();
  head_.body_bytes = parser.get().body().bytes();
  auto exchange = std::make_shared<ExchangeBuffer>(std::move(head_), std::move(parser.get().body()), server_.wake_list);
  co_return co_await Answer(std::move(exchange), receiver);
}

void Connection::LimitBody(Parser* parser, const BodyReceiver* receiver) {
  max_body_bytes_ =
      receiver != nullptr ? receiver->max_bytes() : server_.max_body_bytes.load(std::memory_order_relaxed);
  max_body_option_ = receiver != nullptr ? receiver->max_bytes_option() : "--max-body";
  if (const auto own = receiver == nullptr ? server_.handler->LimitOf(head_) : std::nullopt) {
    max_body_bytes_ = own->bytes;
    max_body_option_ = own->name;
  }
  parser->body_limit(static_cast<uint64_t>(max_body_bytes_));
}

asio::awaitable<error_code> Connection::ReadBody(Parser* parser, BodyReceiver* receiver) {
  error_code ec;
  parser->eager(true);
  FramingLimit framing(server_.options.max_header_bytes);
  int64_t given_bytes = 0, timed_bytes = 0;
  for (;;) {
    if (buffer_.size() > 0) {
      const size_t parsed = parser->put(buffer_.data(), ec);
      buffer_.consume(parsed);
      if (ec && ec != bh::error::need_more) co_return ec;
      const int64_t body_bytes = given_bytes + parser->get().body().bytes();
      if (!framing.Add(parsed, body_bytes)) co_return make_error_code(bh::error::header_limit);
      if (receiver != nullptr && body_bytes > given_bytes) {
        given_bytes = body_bytes;
        ec = co_await HandOver(parser, receiver);
        if (ec) co_return ec;
        if (given_bytes - timed_bytes >= kTimedBytes) {
          timed_bytes = given_bytes;
          SetPhase(Phase::kBody, server_.options.body_timeout_ns);
        }
      }
      if (parser->is_done()) co_return error_code();
    }
    const uint64_t missing = parser->content_length_remaining().value_or(kReadBytes);
    const size_t wanted =
        framing.Room(buffer_.size(), static_cast<size_t>(std::clamp<uint64_t>(missing, kSmallReadBytes, kReadBytes)));
    if (wanted == 0) co_return make_error_code(bh::error::header_limit);
    const size_t size = co_await transport_.ReadSome(buffer_.prepare(wanted), &ec);
    // Bytes that arrive at the moment of the time-out do not extend it.
    if (!ec && timed_out_) ec = asio::error::operation_aborted;
    if (ec) co_return ec;
    buffer_.commit(size);
  }
}

// The client's time-out is paused meanwhile.
asio::awaitable<error_code> Connection::HandOver(Parser* parser, BodyReceiver* receiver) {
  const DurationNs left_ns = std::min(deadline_ns_ - server_.clock.NowNs(), server_.options.body_timeout_ns);
  SetPhase(Phase::kNone, 0);
  auto taken = std::make_shared<Handover<std::optional<HttpResponse>>>();
  receiver->Take(parser->get().body().TakeText(), Into(taken));
  refusal_ = co_await Await(taken);
  SetPhase(Phase::kBody, left_ns);
  error_code ec;
  if (refusal_) ec = make_error_code(boost::system::errc::operation_canceled);
  co_return ec;
}

template <class T>
std::function<void(T)> Connection::Into(std::shared_ptr<Handover<T>> handover) {
  return [handover = std::move(handover), wake = server_.wake_list, self = weak_from_this()](T value) {
    {
      std::lock_guard lock(handover->mutex);
      handover->value = std::move(value);
    }
    wake->Call([self] {
      if (const auto connection = self.lock()) connection->wake_.cancel();
    });
  };
}

template <class T>
asio::awaitable<T> Connection::Await(std::shared_ptr<Handover<T>> handover) {
  for (;;) {
    {
      std::lock_guard lock(handover->mutex);
      if (handover->value) co_return std::move(*handover->value);
    }
    error_code ignored;
    wake_.expires_at(asio::steady_timer::time_point::max());
    co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

std::optional<HttpResponse> Connection::EarlyAnswer(const Parser& parser) {
  Handler& handler = *server_.handler;
  auto last = [this](HttpResponse response) {
    linger_ = true;  // later bytes on this connection are not parsed as a request
    keep_alive_ = false;
    return response;
  };
  if (const auto fault = CheckHeadFraming(head_, http10_)) {
    return last(handler.ErrorResponse(fault->status, fault->message));
  }
  if (head_.Find("Transfer-Encoding") != nullptr && !parser.chunked()) {
    return last(handler.ErrorResponse(400, "Transfer-Encoding: give 'chunked'"));
  }
  if (place_ == Place::kProbeOnly && !handler.IsProbe(head_)) {
    server_.refused.fetch_add(1, std::memory_order_relaxed);
    return last(server_.NoPlace(client_));
  }
  if (server_.options.tls != nullptr && server_.options.tls->asks_clients() && !transport_.has_peer_certificate() &&
      !handler.IsProbe(head_)) {
    return last(handler.ErrorResponse(
        403, "this server needs a client certificate of its authority (--tls-client-ca), except for probes"));
  }
  std::optional<HttpResponse> answer = handler.CheckHead(head_);
  const std::string* expect = head_.Find("Expect");
  if (!answer && expect != nullptr && !EqualsIgnoreCase(*expect, "100-continue")) {
    answer = handler.ErrorResponse(417, "Expect: only 100-continue is supported");
  }
  if (answer && !parser.is_done()) answer = last(std::move(*answer));
  return answer;
}

void Connection::ReadHead(const Parser& parser) {
  const auto& message = parser.get();
  head_.method = std::string(message.method_string());
  head_.target = std::string(message.target());
  for (const auto& field : message)
    head_.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  if (const std::string* host = head_.Find("Host")) head_.authority = *host;
  std::string_view path = head_.target;
  if (EqualsIgnoreCase(path.substr(0, 7), "http://")) {  // absolute form, as proxies send it: overrides Host
    const size_t end = std::min(path.find_first_of("/?#", 7), path.size());
    head_.authority = std::string(path.substr(7, end - 7));
    path = end < path.size() && path[end] == '/' ? path.substr(end) : std::string_view("/");
  }
  head_.path = std::string(path.substr(0, path.find_first_of("?#")));
  head_.peer = peer_;
  http10_ = message.version() < 11;
  head_only_ = message.method() == bh::verb::head;
  keep_alive_ = message.keep_alive() && place_ == Place::kServed;
}

// Answers a failed read, if the client is still there. Always false: nothing more can be read from this connection.
asio::awaitable<bool> Connection::ReadFailed(error_code ec) {
  int status = 0;
  std::string message;
  const char* part = phase_ == Phase::kBody ? "body" : "headers";
  if (refusal_) {
    status = refusal_->status;
  } else if (timed_out_) {
    status = 408;
    const DurationNs limit =
        phase_ == Phase::kBody ? server_.options.body_timeout_ns : server_.options.header_timeout_ns;
    message = fmt::format("the request's {} did not arrive within {} ms", part, limit / kMillisecond);
  } else if (ec == bh::error::body_limit) {
    status = 413;
    message = fmt::format("the request's body is larger than {} bytes ({})", max_body_bytes_, max_body_option_);
  } else if (ec == bh::error::header_limit || ec == bh::error::buffer_overflow) {
    status = 431;
    message = fmt::format("the request's {} than {} bytes",
                          phase_ == Phase::kBody ? "chunk extensions and trailers are longer" : "headers are larger",
                          server_.options.max_header_bytes);
  } else if (ec == boost::system::errc::no_buffer_space && phase_ == Phase::kBody) {
    server_.bodies_refused.fetch_add(1, std::memory_order_relaxed);
    status = 503;
    message = fmt::format("the bodies of all requests together have reached {} bytes (--max-body-total); try again",
                          server_.bodies->limit());
  } else if (ec.category() == make_error_code(bh::error::bad_method).category() && ec != bh::error::end_of_stream &&
             ec != bh::error::partial_message) {
    status = 400;
    message = fmt::format("malformed HTTP request: {}", ec.message());
  }
  if (status == 0) {  // the client has gone
    if (!head_.method.empty()) Report(head_, status, false, nullptr);
    co_return false;
  }
  keep_alive_ = false;
  head_only_ = false;
  HttpResponse response = refusal_ ? std::move(*refusal_) : server_.handler->ErrorResponse(status, message);
  if (timed_out_ && place_ == Place::kProbeOnly) {  // it sent no request; the answer is that the server is full
    server_.refused.fetch_add(1, std::memory_order_relaxed);
    response = server_.NoPlace(client_);
  }
  const int answered = response.status;
  linger_ = co_await WriteResponse(std::move(response));
  Report(head_, answered, linger_, nullptr);
  co_return false;
}

// Calls the handler and writes its answer, and watches for the client's disconnect meanwhile.
asio::awaitable<bool> Connection::Answer(std::shared_ptr<ExchangeBuffer> exchange,
                                         std::shared_ptr<BodyReceiver> receiver) {
  exchange_ = exchange;
  server_.exchanges.fetch_add(1, std::memory_order_acq_rel);
  exchange->on_ready = [this] { wake_.cancel(); };
  Watch();
  if (receiver)
    receiver->Whole(exchange);
  else
    server_.handler->Handle(exchange);
  receiver.reset();
  bool chunked = false;
  int status = 0;
  ExchangeBuffer::Output output;
  while (!gone_) {
    exchange->Take(&output);
    std::string text;
    if (output.has_head) {
      chunked = output.streaming && !http10_;
      if (output.streaming && http10_) keep_alive_ = false;  // the end of the body is the end of the connection
      status = output.head.status;
      server_.Count(status);
      const BodySource* source = output.head.source.get();
      if (const std::string* id = output.head.Find("X-Request-Id")) answer_id_ = *id;
      text = Head(output.head, chunked, source ? static_cast<size_t>(source->bytes()) : output.head.body.size());
      if (!head_only_) text += output.head.body;
    }
    if (!output.bytes.empty() && !head_only_) {
      if (chunked) text += fmt::format("{:x}\r\n", output.bytes.size());
      text += output.bytes;
      if (chunked) text += "\r\n";
    }
    if (output.aborted) {
      keep_alive_ = false;
      aborted_ = true;
    }
    if (output.ended && !output.aborted && chunked && !head_only_) text += "0\r\n\r\n";
    if (!text.empty()) {
      const bool written = co_await WriteAll(std::move(text));
      if (!written) MarkGone();
    }
    if (output.has_head && output.head.source && !head_only_ && !gone_) {
      const bool sent = co_await SendFrom(std::move(output.head.source));
      if (!sent) MarkGone();
    }
    if (output.ended) break;
    if (!output.has_head && output.bytes.empty() && !gone_) {
      error_code ignored;
      wake_.expires_at(asio::steady_timer::time_point::max());
      co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    }
  }
  exchange->on_ready = nullptr;
  Report(exchange->request(), status, !gone_ && !aborted_, exchange->facts().get());
  exchange_.reset();
  ++watch_;
  full_since_ns_ = kNever;
  linger_ = dropping_ && !gone_;
  error_code ignored;
  if (transport_.socket().is_open()) transport_.socket().cancel(ignored);
  server_.ExchangeEnded();
  co_return !gone_ && keep_alive_ && !server_.draining.load(std::memory_order_relaxed);
}

asio::awaitable<bool> Connection::SendFrom(std::shared_ptr<BodySource> source) {
  auto left = static_cast<size_t>(source->bytes());
  while (left > 0 && !gone_) {
    auto come = std::make_shared<Handover<std::optional<std::string>>>();
    source->Next(Into(come));
    std::optional<std::string> piece = co_await Await(come);
    if (!piece || piece->empty() || piece->size() > left) co_return false;
    left -= piece->size();
    const bool written = co_await WriteAll(std::move(*piece));
    if (!written) co_return false;
  }
  co_return !gone_;
}

// Notices a client that closes while its answer is computed. Bytes that arrive meanwhile (pipelined requests) are kept,
// up to a limit. At the limit nothing is read for kPipelineGraceNs, so TCP blocks the client. A close would be hidden
// behind the unread bytes, so after that time everything is read and dropped, and this answer is the last.
void Connection::Watch() {
  if (!dropping_ && buffer_.size() >= kPipelineBytes) {
    full_since_ns_ = server_.clock.NowNs();
    return;
  }
  auto readable = [self = shared_from_this(), generation = ++watch_](error_code ec) {
    if (ec || generation != self->watch_ || !self->exchange_) return;
    self->ReadAhead(&ec);
    if (ec && ec != asio::error::would_block && ec != asio::error::try_again) return self->MarkGone();
    self->Watch();
  };
  if (transport_.has_decrypted())
    asio::post(server_.io, [readable = std::move(readable)] { readable(error_code()); });
  else
    transport_.socket().async_wait(tcp::socket::wait_read, std::move(readable));
}

void Connection::ReadAhead(error_code* ec) {
  if (!dropping_) {
    buffer_.commit(transport_.ReadNow(buffer_.prepare(kSmallReadBytes), ec));
    return;
  }
  std::array<char, 16384> sink;
  dropped_bytes_ += static_cast<int64_t>(transport_.ReadNow(asio::buffer(sink), ec));
  if (dropped_bytes_ > kLingerBytes) *ec = asio::error::no_buffer_space;
}

void Connection::DropReadAhead() {
  full_since_ns_ = kNever;
  dropping_ = true;
  keep_alive_ = false;
  buffer_.clear();
  buffer_.shrink_to_fit();
  Watch();
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

std::string Connection::Head(const HttpResponse& head, bool chunked, size_t body_bytes) const {
  const bool close = !keep_alive_ || server_.draining.load(std::memory_order_relaxed);
  return HeadText(head, chunked, body_bytes, close, http10_);
}

asio::awaitable<bool> Connection::WriteResponse(HttpResponse response) {
  server_.Count(response.status);
  if (const std::string* id = response.Find("X-Request-Id")) answer_id_ = *id;
  std::string text = Head(response, false, response.body.size());
  if (!head_only_) text += response.body;
  const bool written = co_await WriteAll(std::move(text));
  co_return written;
}

asio::awaitable<bool> Connection::WriteAll(std::string bytes) {
  size_t done = 0;
  error_code ec;
  while (done < bytes.size() && !gone_) {
    SetPhase(Phase::kWrite, server_.options.write_timeout_ns);
    const asio::const_buffer left(bytes.data() + done, bytes.size() - done);
    done += co_await transport_.WriteSome(left, &ec);
    if (ec) break;
  }
  SetPhase(Phase::kNone, 0);
  answer_bytes_ += static_cast<int64_t>(done);
  if (first_byte_ns_ == 0 && done > 0) first_byte_ns_ = server_.clock.NowNs();
  co_return done == bytes.size();
}

// Closing with unread input would reset the connection and may destroy the answer: shut down the sending side, then
// read and drop the client's bytes, within limits.
asio::awaitable<void> Connection::Linger() {
  error_code ec;
  transport_.ShutDownSend();
  SetPhase(Phase::kLinger, kLingerNs);
  std::array<char, 16384> sink;
  int64_t total = 0;
  while (!ec && total < kLingerBytes) {
    total += static_cast<int64_t>(co_await transport_.socket().async_read_some(
        asio::buffer(sink), asio::redirect_error(asio::use_awaitable, ec)));
  }
}

void Connection::Report(const HttpRequest& request, int status, bool complete, const RequestFacts* facts) {
  try {
    server_.handler->OnAnswered({.request = request,
                                 .request_id = answer_id_,
                                 .status = status,
                                 .complete = complete,
                                 .request_bytes = request.body_bytes,
                                 .answer_bytes = answer_bytes_,
                                 .start_ns = started_ns_,
                                 .first_byte_ns = first_byte_ns_,
                                 .end_ns = server_.clock.NowNs(),
                                 .facts = facts});
  } catch (const std::exception&) {  // no memory for the report
  }
}

void Connection::CheckDeadline(TimeNs now_ns) {
  if (exchange_ && full_since_ns_ != kNever && now_ns - full_since_ns_ >= kPipelineGraceNs) DropReadAhead();
  if (now_ns < deadline_ns_) return;
  deadline_ns_ = kNever;
  error_code ignored;
  switch (phase_) {
    case Phase::kHeader:
    case Phase::kBody:
      timed_out_ = true;
      transport_.socket().cancel(ignored);
      return;
    case Phase::kWrite:
      return MarkGone();
    default:
      return Close();
  }
}

}  // namespace tactus::http
