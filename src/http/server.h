// The HTTP/1.1 server: listener, connections, limits, time-outs, streaming. One io thread owns every connection, each a
// coroutine; the handler is called on it and must not block. Answers may come from any thread: they are buffered, so
// that a slow client never blocks its producer.
//
// Invariants: an exchange gets one answer, unless its client has gone; requests of one connection are answered in
// order, one at a time (pipelined ones wait); OnClosed is called at most once, and never after End.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "http/answered.h"
#include "http/body.h"
#include "http/body_stream.h"
#include "http/loop.h"
#include "http/message.h"
#include "http/tls.h"
#include "tactus/status.h"

namespace tactus::http {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
  // A connection beyond the limit gets 503 (a probe gets its answer) and is closed. Fewer if descriptors are scarce
  // (RoomWithin).
  int64_t max_connections = 4096;
  int64_t files_per_connection = 1;                   // 2: each also has an upstream connection
  int64_t max_files = 0;                              // descriptors for this server; 0: all that the process may have
  int64_t max_connections_per_client = 0;             // as max_connections, for one address; 0: half of it
  int64_t max_body_bytes = int64_t{16} << 20;         // 413
  int64_t max_body_total_bytes = int64_t{256} << 20;  // all bodies in memory; beyond it 503
  int64_t max_header_bytes = 64 << 10;                // 431; also chunk extensions and trailers of one body
  DurationNs idle_timeout_ns = 75 * kSecond;          // between requests
  DurationNs header_timeout_ns = 15 * kSecond;        // first byte of a request to the end of its headers: 408
  DurationNs body_timeout_ns = 60 * kSecond;          // end of headers to end of body: 408; per MiB with a receiver
  DurationNs write_timeout_ns = 30 * kSecond;         // without progress; then the client counts as gone
  std::shared_ptr<TlsContext> tls;                    // null: without TLS
  DurationNs tick_ns = 0;  // interval of time-out checks; 0: a quarter of the shortest time-out, at most 250 ms
};

// One request and its answer: either Respond, or StartStream, Write..., End. Any thread.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  // Moves the body out; empty on a second call, and after the client has gone. Free it once it is parsed: until then
  // its bytes count towards max_body_total_bytes.
  virtual Body TakeBody() = 0;
  virtual void Respond(HttpResponse response) = 0;
  // Sends status and headers; the body follows in pieces of any size (chunked).
  virtual void StartStream(HttpResponse head) = 0;
  // Never blocks; bytes after the client has gone are dropped.
  virtual void Write(std::string_view bytes) = 0;
  virtual void End() = 0;
  // Instead of End: closes the connection, so that the client notices that the answer is incomplete.
  virtual void Abort() = 0;
  // Bytes that were written and not yet sent to the client.
  virtual int64_t unsent() const = 0;
  // Calls `callback` on the io thread once all bytes are sent; never if the client goes first. One at a time; for
  // producers on the io thread.
  virtual void WhenSent(std::function<void()> callback) = 0;
  // `callback` is called on the io thread if the client goes (or stops reading) before the end of the answer; at once,
  // on the calling thread, if that has already happened. An empty function frees the captures of the previous one.
  virtual void OnClosed(std::function<void()> callback) = 0;
  virtual bool closed() const = 0;
  // What the handler knows of the request, for Handler::OnAnswered; replaces earlier facts. Call before the answer's
  // end.
  virtual void Note(RequestFacts /*facts*/) {}
};

// A separate limit for the body of one request.
struct BodyLimit {
  int64_t bytes = 0;
  const char* name = "";  // the option named in the error for a larger body; static
};

class Handler {
 public:
  virtual ~Handler() = default;
  // Checks a request before its body is read; an answer here refuses it. Io thread.
  virtual std::optional<HttpResponse> CheckHead(const HttpRequest& head) = 0;
  // The receiver for the body of a request that CheckHead accepted; null: the body is kept in memory, for Handle. Io
  // thread.
  virtual std::shared_ptr<BodyReceiver> ReceiveBody(const HttpRequest& /*head*/) { return nullptr; }
  // The limit for a body kept in memory; nothing: max_body_bytes. Io thread.
  virtual std::optional<BodyLimit> LimitOf(const HttpRequest& /*head*/) { return std::nullopt; }
  virtual void Handle(std::shared_ptr<Exchange> exchange) = 0;  // io thread
  // Whether a request must be answered even if no connection is free. Io thread.
  virtual bool IsProbe(const HttpRequest& /*head*/) { return false; }
  // The answer, in the handler's format, for an error that the server itself finds (400, 408, 413, 417, 431, 501, 503).
  // Io thread.
  virtual HttpResponse ErrorResponse(int status, const std::string& message) = 0;
  virtual void OnTick(TimeNs /*now_ns*/) {}  // io thread, a few times a second
  // A request has been answered, or its client has gone. Io thread.
  virtual void OnAnswered(const Answered& /*answered*/) {}
};

struct ServerStats {
  int64_t connections = 0;
  int64_t connections_total = 0;
  int64_t connections_refused = 0;                 // 503 because no connection was free
  int64_t body_bytes = 0;                          // of bodies in memory
  int64_t body_bytes_limit = 0;                    // max_body_total_bytes, or the limit set by LimitBodies
  int64_t bodies_refused = 0;                      // bodies beyond body_bytes_limit
  int64_t exchanges = 0;                           // being answered
  bool tls = false;                                // it has a certificate
  int64_t tls_not_after_s = 0;                     // the end of its validity, Unix seconds
  int64_t tls_failures = 0;                        // handshakes that failed
  int64_t client_gone = 0;                         // exchanges whose client disconnected before the end
  std::vector<std::pair<int, int64_t>> responses;  // HTTP status, count
};

class Server {
 public:
  // Binds and listens; connections wait until Start. kUnavailable if the port is in use, kInvalidArgument for an
  // invalid host. `handler` and `clock` outlive the server.
  static Result<std::unique_ptr<Server>> Listen(const ServerOptions& options, Handler* handler, Clock& clock);
  // Closes every connection, joins.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Starts to answer requests. Call once.
  void Start();
  // Joins: afterwards no callback runs, and exchanges have lost their clients. For owners of clients on loop().
  void Stop();
  // The loop of the io thread, for HTTP clients that shall run there. Destroy them after Stop and before the server.
  Loop& loop();
  uint16_t port() const;
  // Whether only this machine can reach the listener.
  bool loopback() const;
  // From now on every answer closes its connection.
  void SetDraining();
  // Lowers the limits from the next request on, if less memory is left than the options assume. Any thread.
  void LimitBodies(int64_t max_body_bytes, int64_t max_body_total_bytes);
  // True if every exchange has been answered and written within the time.
  bool WaitUntilIdle(DurationNs timeout_ns);
  ServerStats Stats() const;

  struct Impl;

 private:
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::http
