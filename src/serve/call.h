// What every request that parse threads work for has in common: it is answered once, within its time, whatever happens
// meanwhile. Its time-out, its client's leave and the server's end set one flag, which queued work looks at before it
// begins and running work every few thousand steps. An exception of its work is its own: that request gets an error,
// the others go on.
//
// Thread rule: Run on a parse thread, Tick and the client's leave on the io thread, the rest on any; one mutex orders
// them. Invariants: over() never becomes false again; the client's places that it holds are given back before the
// answer is complete; the derived class is never called with the mutex held, but for AnswerError.
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

// x-tactus-ignored, with the names of what a body held in vain; nothing where there is none.
void AppendIgnored(const std::vector<std::string>& names, http::Headers* headers);

class Call : public std::enable_shared_from_this<Call> {
 public:
  // `headers` go with every answer (X-Request-Id, CORS). `timeout_ns` 0: none.
  Call(std::shared_ptr<http::Exchange> exchange, http::Headers headers, TimeNs arrival_ns, DurationNs timeout_ns,
       http::ClientCounts::Places places);
  virtual ~Call() = default;

  void Watch();         // notices the client's leave from now on; before it is posted
  void Run() noexcept;  // its work, unless it is over already
  void Tick(TimeNs now_ns);
  // Answers with the error, unless it is over already.
  void Fail(const Status& status);
  void ShutDown() noexcept { FailSurely(StatusCode::kUnavailable); }
  int64_t body_bytes() const { return exchange_->request().body_bytes; }
  bool over() const { return over_.load(); }

 protected:
  virtual void Work() = 0;              // on a parse thread
  virtual void WhileWaiting(TimeNs) {}  // a few times a second, on the io thread
  virtual void AnswerError(const Status& status);
  virtual void LetGo() {}  // it is over: ends what still runs for it

  StopToken stop() const { return StopToken(&over_); }
  void Respond(http::HttpResponse response);
  // Runs `step`; what it throws ends this call alone.
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
  // With the mutex held, before the last byte of an answer: who reads it may send its next request at once.
  void Leave() { places_.ReleaseAll(); }
  void End(std::unique_lock<std::mutex> lock);  // it is over now; lets go of the lock

  const std::shared_ptr<http::Exchange> exchange_;
  const http::Headers headers_;
  const TimeNs arrival_ns_;
  std::mutex mutex_;
  http::ClientCounts::Places places_;  // of what the engine has not got; with the mutex held

 private:
  void FailSurely(StatusCode code) noexcept;
  void ClientGone();

  const DurationNs timeout_ns_;
  std::atomic<bool> over_{false};
  // There was no memory to say that there is no memory: the next tick tries again.
  StatusCode unsaid_ = StatusCode::kOk;
  std::shared_ptr<Call> kept_;
};

}  // namespace tactus::serve
