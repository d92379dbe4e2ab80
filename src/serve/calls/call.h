// The base of requests that parse threads process: each is answered once, within its time-out. The time-out, the
// client's disconnect and the server's shutdown set one flag, which queued work checks before it starts and running
// work every few thousand steps. An exception ends only its own request, with an error.
//
// Thread rule: Run on a parse thread, Tick and the client's disconnect on the io thread, the rest on any; one mutex
// orders them. Invariants: over() never becomes false again; the client's places are released before the answer is
// complete; functions of the derived class are called without the mutex, except AnswerError.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "base/clock.h"
#include "http/client_counts.h"
#include "http/server.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::serve {

// Adds the header x-tactus-ignored with the names of ignored fields, if there are any.
void AppendIgnored(const std::vector<std::string>& names, http::Headers* headers);

class Call : public std::enable_shared_from_this<Call> {
 public:
  // `headers` are added to every answer (X-Request-Id, CORS). `timeout_ns` 0: none.
  Call(std::shared_ptr<http::Exchange> exchange, http::Headers headers, TimeNs arrival_ns, DurationNs timeout_ns,
       http::ClientCounts::Places places);
  virtual ~Call() = default;

  void Watch();         // starts to notice the client's disconnect; call before posting
  void Run() noexcept;  // does the work, unless the call is over
  void Tick(TimeNs now_ns);
  // Answers with the error, unless the call is over.
  void Fail(const Status& status);
  void ShutDown() noexcept { FailSurely(StatusCode::kUnavailable); }
  int64_t body_bytes() const { return exchange_->request().body_bytes; }
  bool over() const { return over_.load(); }

 protected:
  virtual void Work() = 0;              // on a parse thread
  virtual void WhileWaiting(TimeNs) {}  // a few times a second, on the io thread
  virtual void AnswerError(const Status& status);
  virtual void LetGo() {}  // the call is over: cancels its running work

  StopToken stop() const { return StopToken(&over_); }
  void Respond(http::HttpResponse response);
  // Runs `step`; an exception ends only this call.
  template <class Step>
  void Guard(Step step) noexcept {
    try {
      step();
    } catch (const std::bad_alloc&) {
      FailSurely(StatusCode::kResourceExhausted);
    } catch (...) {
      FailSurely(StatusCode::kInternal);
    }
  }
  // Call with the mutex held, before the last byte of an answer: its reader may send the next request at once.
  void Leave() { places_.ReleaseAll(); }
  void End(std::unique_lock<std::mutex> lock);  // marks the call as over; releases the lock

  const std::shared_ptr<http::Exchange> exchange_;
  const http::Headers headers_;
  const TimeNs arrival_ns_;
  std::mutex mutex_;
  http::ClientCounts::Places places_;  // for sequences not passed to the engine; guarded by the mutex

 private:
  void FailSurely(StatusCode code) noexcept;
  void ClientGone();

  const DurationNs timeout_ns_;
  std::atomic<bool> over_{false};
  // An error that could not be sent for lack of memory: the next tick tries again.
  StatusCode unsaid_ = StatusCode::kOk;
  std::shared_ptr<Call> kept_;
};

}  // namespace tactus::serve
