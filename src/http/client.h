// A small HTTP/1.1 client for load generators, the router and tests: any number of concurrent requests on one thread.
// It parses server-sent events as they arrive, each with the time at which its bytes were read, or passes the answer on
// in pieces, no faster than the handler accepts them.
//
// Thread rule: Send, At and the callbacks run on the thread that runs the loop, or before it runs. Stop is for any
// thread.
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
#include "http/tls.h"
#include "tactus/status.h"

namespace tactus::http {

struct Url {
  std::string host;
  uint16_t port = 80;
  std::string path;  // with a leading '/', never empty
  bool tls = false;  // https
};
// "http://host[:port][/path]" or https; IPv6 hosts in brackets. kInvalidArgument names the error.
Result<Url> ParseUrl(std::string_view text);

// Splits a text/event-stream body into events, for any cuts between its pieces. Comments are dropped; an event's data
// lines are joined with '
// '.
class SseParser {
 public:
  static constexpr size_t kMostEventBytes = size_t{16} << 20;
  using OnData = std::function<void(std::string_view data)>;
  // False: an event is longer than kMostEventBytes; Feed must not be called again.
  bool Feed(std::string_view bytes, const OnData& on_data);

 private:
  void Line(std::string_view line, const OnData& on_data);
  std::string partial_;
  std::string data_;
  bool has_data_ = false;
};

// Receives the results of one request, in this order. OnDone is always the last call, once. An exception of a handler
// ends its call; OnDone reports it.
class ResponseHandler {
 public:
  virtual ~ResponseHandler() = default;
  virtual void OnHead(int /*status*/, const Headers& /*headers*/, TimeNs /*received_ns*/) {}
  // The data of one server-sent event (of a 2xx answer of type text/event-stream); "[DONE]" included.
  virtual void OnEvent(std::string_view /*data*/, TimeNs /*received_ns*/) {}
  // With ClientOptions::pieces, instead of OnEvent: bytes of a body of any type. False: pause until Resume.
  virtual bool OnPiece(std::string_view /*bytes*/) { return true; }
  // `status` is ok if the whole answer arrived, with any HTTP status; else the error (connect, reset, time-out,
  // cancelled, invalid HTTP; kResourceExhausted: this process has no memory or file descriptor left). `response` has
  // status and headers if they arrived, and the body if it was not an event stream.
  virtual void OnDone(const Status& status, const HttpResponse& response, TimeNs received_ns) = 0;
};

// A path or header that would break its line (a space or control character in the path, a control character in a
// header) is refused: OnDone gets kInvalidArgument, and nothing is sent.
struct ClientRequest {
  std::string method = "POST";
  std::string path;  // "/v1/chat/completions"
  Headers headers;   // Host, Content-Length and Connection are added
  std::string body;
  std::shared_ptr<const Body> counted = {};  // instead of `body`; released when the answer begins

  std::string_view text() const { return counted ? counted->text() : std::string_view(body); }
};

struct ClientOptions {
  DurationNs connect_timeout_ns = 30 * kSecond;     // includes name resolution
  DurationNs timeout_ns = 0;                        // whole request; 0: none
  int64_t max_response_bytes = int64_t{256} << 20;  // limit for an answer in memory: no event stream, no pieces
  std::shared_ptr<TlsContext> tls;                  // for https; null: trusts the system's authorities
  bool pieces = false;                              // pass the answer, of any length, to OnPiece
};

class Client {
 public:
  using CallId = uint64_t;

  Client(Url base, ClientOptions options, Clock& clock);
  // Uses a shared loop, which its owner runs and which outlives the client.
  Client(Url base, ClientOptions options, Clock& clock, Loop& loop);
  ~Client();  // drops requests in flight, without OnDone
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Starts at once (inside Run); connections are kept and reused.
  CallId Send(ClientRequest request, std::shared_ptr<ResponseHandler> handler);
  // Closes the call's connection; the handler gets OnDone with kCancelled. No effect on an ended call.
  void Cancel(CallId id);
  // Continues after OnPiece returned false. No effect on an ended call.
  void Resume(CallId id);
  // Calls `action` at this time of the clock or later, never earlier.
  void At(TimeNs when_ns, std::function<void()> action);
  // Returns when every request has ended and no action is left, or after Stop. Run may be called again.
  void Run();
  void Stop();
  // Closes connections that have been idle for at least `idle_ns`.
  void CloseIdle(DurationNs idle_ns);
  int64_t in_flight() const;

 private:
  struct Impl;
  std::unique_ptr<Loop> own_loop_;
  Loop& loop_;
  std::shared_ptr<Impl> impl_;  // kept alive by its coroutines
};

// One request, blocking; an answer of at most 16 MiB.
Result<HttpResponse> Fetch(const Url& base, ClientRequest request, DurationNs timeout_ns, Clock& clock);

}  // namespace tactus::http
