// The HTTP/1.1 server: listener, connections, limits, time-outs, streaming. One io thread owns every connection, each a
// coroutine; the handler is called on it and must not block. What an exchange produces may come from any thread: it is
// buffered, so that a slow client never holds its producer.
//
// Invariants: an exchange gets one answer (or its client has gone); requests of one connection are answered in order,
// one at a time (pipelined ones wait); OnClosed is called at most once, and never after End.
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
#include "http/body.h"
#include "http/body_stream.h"
#include "http/loop.h"
#include "http/message.h"
#include "tactus/status.h"

namespace tactus::http {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
  // Beyond it a connection gets 503 (a probe its answer) and is closed. Fewer where descriptors are few (RoomWithin).
  int64_t max_connections = 4096;
  int64_t files_per_connection = 1;            // 2: each has one of its own to somewhere else
  int64_t max_files = 0;                       // descriptors that it may count on; 0: all that the process may have
  int64_t max_connections_per_client = 0;      // as max_connections, for one address; 0: half of it
  int64_t max_body_bytes = int64_t{16} << 20;  // 413
  int64_t max_body_total_bytes = int64_t{256} << 20;  // all bodies that are held; beyond it 503
  int64_t max_header_bytes = 64 << 10;                // 431; also chunk extensions and trailers of one body
  DurationNs idle_timeout_ns = 75 * kSecond;          // between requests
  DurationNs header_timeout_ns = 15 * kSecond;        // first byte of a request to the end of its headers: 408
  DurationNs body_timeout_ns = 60 * kSecond;          // end of headers to end of body: 408; of a body that goes to a
                                                      // receiver, for each MiB
  DurationNs write_timeout_ns = 30 * kSecond;         // without progress; then the client counts as gone
  DurationNs tick_ns = 0;  // how often time-outs are looked at; 0: a quarter of the shortest, at most 250 ms
};

// One request and its answer: either Respond, or StartStream, Write..., End. Any thread.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  // Moves the body out, once; it is empty afterwards, and when the client has gone. Let go of it once it is parsed:
  // until then its bytes count against max_body_total_bytes.
  virtual Body TakeBody() = 0;
  virtual void Respond(HttpResponse response) = 0;
  // Sends status and headers; the body follows in pieces of any size (chunked).
  virtual void StartStream(HttpResponse head) = 0;
  // Never blocks; bytes after the client has gone are dropped.
  virtual void Write(std::string_view bytes) = 0;
  virtual void End() = 0;
  // Instead of End: the connection closes, so that the client sees that the answer is not whole.
  virtual void Abort() = 0;
  // Bytes that were written and have not gone to the client yet.
  virtual int64_t unsent() const = 0;
  // Calls back, on the io thread, once they have all gone; not if the client goes first. One at a time; for producers
  // on the io thread.
  virtual void WhenSent(std::function<void()> callback) = 0;
  // Called on the io thread when the client goes (or stops reading) before the end of the answer; at once, on the
  // calling thread, if that has happened already. Pass an empty function to let go of what it captured.
  virtual void OnClosed(std::function<void()> callback) = 0;
  virtual bool closed() const = 0;
};

// A limit of its own for the body of one request.
struct BodyLimit {
  int64_t bytes = 0;
  const char* name = "";  // what a client that passed it is told to look at; lives on
};

class Handler {
 public:
  virtual ~Handler() = default;
  // Sees a request before its body is read; an answer here refuses it. Io thread.
  virtual std::optional<HttpResponse> CheckHead(const HttpRequest& head) = 0;
  // Who takes the body of a request that CheckHead let pass; null: it is held, for Handle. Io thread.
  virtual std::shared_ptr<BodyReceiver> ReceiveBody(const HttpRequest& /*head*/) { return nullptr; }
  // Of a body that is held; nothing: max_body_bytes. Io thread.
  virtual std::optional<BodyLimit> LimitOf(const HttpRequest& /*head*/) { return std::nullopt; }
  virtual void Handle(std::shared_ptr<Exchange> exchange) = 0;  // io thread
  // What must be answered even when there is no place for another connection. Io thread.
  virtual bool IsProbe(const HttpRequest& /*head*/) { return false; }
  // Errors that the server itself finds (400, 408, 413, 417, 431, 501, 503), in the handler's own format. Io thread.
  virtual HttpResponse ErrorResponse(int status, const std::string& message) = 0;
  virtual void OnTick(TimeNs /*now_ns*/) {}  // io thread, a few times a second
};

struct ServerStats {
  int64_t connections = 0;
  int64_t connections_total = 0;
  int64_t connections_refused = 0;                 // told 503 for want of a place
  int64_t body_bytes = 0;                          // of bodies that are held
  int64_t body_bytes_limit = 0;                    // max_body_total_bytes, or what LimitBodies made of it
  int64_t bodies_refused = 0;                      // for want of room in it
  int64_t exchanges = 0;                           // being answered
  int64_t client_gone = 0;                         // exchanges whose client went before the end
  std::vector<std::pair<int, int64_t>> responses;  // HTTP status, count
};

class Server {
 public:
  // Binds and listens; connections wait until Start. kUnavailable when the port is in use, kInvalidArgument for a host
  // that is none. `handler` and `clock` outlive the server.
  static Result<std::unique_ptr<Server>> Listen(const ServerOptions& options, Handler* handler, Clock& clock);
  // Closes every connection, joins.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Requests are answered from now on. Once.
  void Start();
  // Joins: nothing is called back from now on, and exchanges have lost their clients. For those who stand on loop().
  void Stop();
  // That of the io thread, for clients of other servers that shall run there. They go after Stop and before the server.
  Loop& loop();
  uint16_t port() const;
  // It listens where only this machine can reach it.
  bool loopback() const;
  // From now on every answer closes its connection.
  void SetDraining();
  // From the next request on; where less memory is left than the options count on. Any thread.
  void LimitBodies(int64_t max_body_bytes, int64_t max_body_total_bytes);
  // True when every exchange has been answered and written within the time.
  bool WaitUntilIdle(DurationNs timeout_ns);
  ServerStats Stats() const;

  struct Impl;

 private:
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::http
