// One client connection: reads requests, checks them, calls the handler and writes its answer. Runs in one coroutine on
// the io thread, the only thread that uses it, so it needs no locks; producers reach it through ExchangeBuffer.
// Internal to http/; includes Beast.
//
// Invariants: no body bytes are stored before the head has passed every check; after a head with doubtful framing
// nothing more is read; the buffered bytes of a request outside its body are bounded by max_header_bytes.
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "http/body_stream.h"
#include "http/server_impl.h"
#include "http/transport.h"

namespace tactus::http {

// Beast's string_body reserves the claimed Content-Length; this body grows as bytes arrive, and is counted.
struct CountedBody {
  using value_type = Body;
  class reader {
   public:
    template <bool kRequest, class Fields>
    reader(boost::beast::http::header<kRequest, Fields>&, Body& body) : body_(body) {}
    void init(const boost::optional<uint64_t>& length, error_code& ec) {
      if (length) body_.Expect(*length);
      ec = {};
    }
    template <class Buffers>
    size_t put(const Buffers& buffers, error_code& ec) {
      size_t taken = 0;
      for (const auto buffer : boost::beast::buffers_range_ref(buffers)) {
        if (!body_.Append(std::string_view(static_cast<const char*>(buffer.data()), buffer.size()))) {
          ec = make_error_code(boost::system::errc::no_buffer_space);
          return taken;
        }
        taken += buffer.size();
      }
      ec = {};
      return taken;
    }
    void finish(error_code& ec) { ec = {}; }

   private:
    Body& body_;
  };
};

// A value that another thread passes to the waiting coroutine. The sender may outlive the connection.
template <class T>
struct Handover {
  std::mutex mutex;
  std::optional<T> value;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Server::Impl* server, tcp::socket socket, std::string peer, std::string client, Place place);
  ~Connection();

  asio::awaitable<void> Run(std::shared_ptr<Connection> self);
  void CheckDeadline(TimeNs now_ns);
  // The client has gone, or counts as gone: work on its answer stops.
  void MarkGone();
  void DropExchange() {
    if (exchange_) exchange_->ClientGone();
  }

 private:
  enum class Phase { kNone, kIdle, kHeader, kBody, kWrite, kLinger };
  using Parser = boost::beast::http::request_parser<CountedBody>;

  // False: no request can be read.
  asio::awaitable<bool> Handshake();
  asio::awaitable<bool> ServeOne();
  asio::awaitable<error_code> ReadHeader(Parser* parser);
  // Reads the body into the receiver, or without one into the parser's message.
  asio::awaitable<error_code> ReadBody(Parser* parser, BodyReceiver* receiver);
  asio::awaitable<error_code> HandOver(Parser* parser, BodyReceiver* receiver);
  asio::awaitable<bool> ReadFailed(error_code ec);
  // The answer comes from the body's receiver, or without one from the handler.
  asio::awaitable<bool> Answer(std::shared_ptr<ExchangeBuffer> exchange, std::shared_ptr<BodyReceiver> receiver);
  asio::awaitable<bool> SendFrom(std::shared_ptr<BodySource> source);
  asio::awaitable<bool> WriteAll(std::string bytes);
  asio::awaitable<void> Linger();
  asio::awaitable<bool> WriteResponse(HttpResponse response);
  template <class T>
  asio::awaitable<T> Await(std::shared_ptr<Handover<T>> handover);
  template <class T>
  std::function<void(T)> Into(std::shared_ptr<Handover<T>> handover);
  void ReadHead(const Parser& parser);
  void LimitBody(Parser* parser, const BodyReceiver* receiver);
  // An answer that does not need the body: an error or a refusal.
  std::optional<HttpResponse> EarlyAnswer(const Parser& parser);
  std::string Head(const HttpResponse& head, bool chunked, size_t body_bytes) const;
  void Watch();
  void ReadAhead(error_code* ec);
  void DropReadAhead();
  void SetPhase(Phase phase, DurationNs limit_ns) {
    phase_ = phase;
    deadline_ns_ = phase == Phase::kNone ? kNever : server_.clock.NowNs() + limit_ns;
  }
  void Close() {
    error_code ignored;
    transport_.socket().close(ignored);
  }
  void Report(const HttpRequest& request, int status, bool complete, const RequestFacts* facts);

  Server::Impl& server_;
  Transport transport_;
  asio::steady_timer wake_;  // never expires; cancelled to wake the coroutine
  boost::beast::flat_buffer buffer_;
  const std::string peer_, client_;  // the client's address; the key under which it is counted
  const Place place_;
  HttpRequest head_;                     // being read
  std::optional<HttpResponse> refusal_;  // the receiver's refusal of the body
  int64_t max_body_bytes_ = 0;           // limit for the request that is being read
  const char* max_body_option_ = "--max-body";
  std::shared_ptr<ExchangeBuffer> exchange_;
  Phase phase_ = Phase::kNone;
  TimeNs deadline_ns_ = kNever;
  TimeNs started_ns_ = 0, first_byte_ns_ = 0;  // the request's head has arrived; its answer was begun
  int64_t answer_bytes_ = 0;
  std::string answer_id_;  // X-Request-Id of the answer
  bool timed_out_ = false, gone_ = false, aborted_ = false, linger_ = false, served_ = false;
  bool keep_alive_ = true, http10_ = false, head_only_ = false;
  uint64_t watch_ = 0;             // generation; completions of older watchers are ignored
  TimeNs full_since_ns_ = kNever;  // when the read-ahead became full
  bool dropping_ = false;          // read-ahead bytes are dropped, to notice the client's close
  int64_t dropped_bytes_ = 0;
};

}  // namespace tactus::http
