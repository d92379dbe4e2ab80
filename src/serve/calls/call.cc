#include "serve/calls/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "api/apis.h"
#include "api/chat/response_text.h"

namespace tactus::serve {

void AppendIgnored(const std::vector<std::string>& names, http::Headers* headers) {
  std::string list = api::IgnoredText(names);
  if (!list.empty()) headers->emplace_back(api::kIgnoredHeader, std::move(list));
}

Call::Call(std::shared_ptr<http::Exchange> exchange, http::Headers headers, TimeNs arrival_ns, DurationNs timeout_ns,
           http::ClientCounts::Places places)
    : exchange_(std::move(exchange)),
      headers_(std::move(headers)),
      arrival_ns_(arrival_ns),
      places_(std::move(places)),
      timeout_ns_(timeout_ns) {}

void Call::Watch() {
  exchange_->OnClosed([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->ClientGone();
  });
}

void Call::Run() noexcept {
  if (!over()) Guard([this] { Work(); });
}

void Call::Tick(TimeNs now_ns) {
  std::shared_ptr<Call> kept;
  StatusCode unsaid = StatusCode::kOk;
  {
    std::lock_guard lock(mutex_);
    kept.swap(kept_);
    std::swap(unsaid, unsaid_);
  }
  if (over()) return;
  Guard([&] {
    if (unsaid != StatusCode::kOk) return FailSurely(unsaid);
    if (timeout_ns_ > 0 && now_ns - arrival_ns_ >= timeout_ns_) {
      return Fail(Status(StatusCode::kDeadlineExceeded,
                         fmt::format("the request took longer than {} ms, the limit (--request-timeout)",
                                     timeout_ns_ / kMillisecond)));
    }
    WhileWaiting(now_ns);
  });
}

void Call::Fail(const Status& status) {
  std::unique_lock lock(mutex_);
  if (over()) return;
  Leave();
  AnswerError(status);
  End(std::move(lock));
}

void Call::FailSurely(StatusCode code) noexcept {
  const char* message = code == StatusCode::kInternal      ? "this request failed in the server"
                        : code == StatusCode::kUnavailable ? "the server is shutting down; try another one"
                                                           : "the server has no memory for this request at the moment";
  try {
    Fail(Status(code, message));
  } catch (...) {
    std::lock_guard lock(mutex_);
    unsaid_ = code;
    kept_ = shared_from_this();
  }
}

void Call::AnswerError(const Status& status) {
  http::HttpResponse response;
  response.status = api::HttpStatusOf(status.code());
  response.headers = headers_;
  http::AddRetryAfter(&response, std::max<int64_t>(1, (status.retry_after_ns() + kSecond - 1) / kSecond));
  response.body = api::ApiOfPath(exchange_->request().path).ErrorText(status);
  exchange_->Respond(std::move(response));
}

void Call::Respond(http::HttpResponse response) {
  std::unique_lock lock(mutex_);
  if (over()) return;
  Leave();
  exchange_->Respond(std::move(response));
  End(std::move(lock));
}

void Call::ClientGone() {
  std::unique_lock lock(mutex_);
  if (!over()) End(std::move(lock));
}

void Call::End(std::unique_lock<std::mutex> lock) {
  over_.store(true);
  Leave();
  lock.unlock();
  try {
    LetGo();
  } catch (...) {  // no memory to cancel: the running work ends by itself
  }
}

}  // namespace tactus::serve
