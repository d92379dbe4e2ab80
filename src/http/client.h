// A small HTTP/1.1 client for load generators, the router and tests: any number of concurrent requests on one thread,
// server-sent events parsed as they arrive, every event with the time at which its bytes were read; or the answer as it
// comes, piece by piece, no faster than who takes it.
//
// Thread rule: everything (Send, At, the callbacks) happens on the thread that runs the loop, or before it runs. Stop
// is for any thread. http:// only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "http/body.h"
#include "http/loop.h"
#include "http/message.h"
#include "tactus/status.h"

namespace tactus::http {

struct Url {
  std::string host;
  uint16_t port = 80;
  std::string path;  // with a leading '/', never empty
};
// "http://host[:port][/path]"; IPv6 hosts in brackets. kInvalidArgument says what is wrong (https included).
Result<Url> ParseUrl(std::string_view text);

// Splits a text/event-stream body into events, whatever the pieces it comes in. Comments are dropped; an event's data
// lines are joined with '\n'.
class SseParser {
 public:
  static constexpr size_t kMostEventBytes = size_t{16} << 20;
  using OnData = std::function<void(std::string_view data)>;
  // False: an event is longer than kMostEventBytes. Nothing more can be read then.
  bool Feed(std::string_view bytes, const OnData& on_data);

 private:
  void Line(std::string_view line, const OnData& on_data);
  std::string partial_;
  std::string data_;
  bool has_data_ = false;
};

// What one request produces, in this order. OnDone is always the last call, once. What a handler throws ends its call:
// OnDone says so.
class ResponseHandler {
 public:
  virtual ~ResponseHandler() = default;
  virtual void OnHead(int /*status*/, const Headers& /*headers*/, TimeNs /*received_ns*/) {}
  // The data of one server-sent event (of a 2xx answer of type text/event-stream); "[DONE]" included.
  virtual void OnEvent(std::string_view /*data*/, TimeNs /*received_ns*/) {}
  // With ClientOptions::pieces, instead: bytes of the body, of whatever kind. False: no more before Resume.
  virtual bool OnPiece(std::string_view /*bytes*/) { return true; }
  // `status` is ok when the whole answer arrived, whatever its HTTP status; else what went wrong (connect, reset,
  // time-out, cancelled, an answer that is none of HTTP's; kResourceExhausted: this process has no memory or no file
  // descriptor left). `response` has status and headers if they arrived, and the body when it was no event stream.
  virtual void OnDone(const Status& status, const HttpResponse& response, TimeNs received_ns) = 0;
};

// Path and headers that would end their line (a space or control character in the path, a control character in a
// header) are refused: OnDone says kInvalidArgument, and nothing is sent.
struct ClientRequest {
  std::string method = "POST";
  std::string path;  // "/v1/chat/completions"
  Headers headers;   // Host, Content-Length and Connection are added
  std::string body;
  std::shared_ptr<const Body> counted = {};  // in place of `body`; let go of when the answer begins

  std::string_view text() const { return counted ? counted->text() : std::string_view(body); }
};

struct ClientOptions {
  DurationNs connect_timeout_ns = 30 * kSecond;     // the name server's time included
  DurationNs timeout_ns = 0;                        // whole request; 0: none
  int64_t max_response_bytes = int64_t{256} << 20;  // of an answer that is held: no event stream, no pieces
  bool pieces = false;                              // of answers of any length
};

class Client {
 public:
  using CallId = uint64_t;

  Client(Url base, ClientOptions options, Clock& clock);
  // On a loop that others use too and its owner runs; it outlives the client.
  Client(Url base, ClientOptions options, Clock& clock, Loop& loop);
  ~Client();  // drops what is in flight; no OnDone then
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Starts at once (inside Run); connections are kept and reused.
  CallId Send(ClientRequest request, std::shared_ptr<ResponseHandler> handler);
  // Closes its connection; the handler gets OnDone with kCancelled. Ended: no effect.
  void Cancel(CallId id);
  // After OnPiece said false. Ended: no effect.
  void Resume(CallId id);
  // Calls `action` at this time of the clock, late rather than early.
  void At(TimeNs when_ns, std::function<void()> action);
  // Returns when every request has ended and no action is left, or after Stop. Run may be called again.
  void Run();
  void Stop();
  // Closes connections that have been idle for so long.
  void CloseIdle(DurationNs idle_ns);
  int64_t in_flight() const;

 private:
  struct Impl;
  std::unique_ptr<Loop> own_loop_;
  Loop& loop_;
  std::shared_ptr<Impl> impl_;  // its coroutines keep it
};

// One request, blocking; an answer of at most 16 MiB.
Result<HttpResponse> Fetch(const Url& base, ClientRequest request, DurationNs timeout_ns, Clock& clock);

}  // namespace tactus::http
