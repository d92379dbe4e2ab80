// A call that reads or writes stored files or batches: a function of the request's body, run on a disk thread.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "serve/calls/call.h"

namespace tactus::serve {

class StoredCall final : public Call {
 public:
  // `stop`: the call has been answered, or its client has left.
  using Answer = std::function<Result<http::HttpResponse>(const http::Body& body, StopToken stop)>;
  StoredCall(std::shared_ptr<http::Exchange> exchange, http::Headers headers, TimeNs arrival_ns, DurationNs timeout_ns,
             Answer answer)
      : Call(std::move(exchange), std::move(headers), arrival_ns, timeout_ns, {}), answer_(std::move(answer)) {}

 private:
  void Work() override {
    auto response = answer_(exchange_->TakeBody(), stop());
    if (!response.ok()) return Fail(response.status());
    response->headers.insert(response->headers.begin(), headers_.begin(), headers_.end());
    Respond(std::move(*response));
  }

  const Answer answer_;
};

}  // namespace tactus::serve
