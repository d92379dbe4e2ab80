#include "serve/moves/detached_exchange.h"

#include <utility>

namespace tactus::serve {

DetachedExchange::DetachedExchange(http::HttpRequest request, std::string_view body)
    : request_(std::move(request)), body_(std::make_shared<http::BodyTotal>(static_cast<int64_t>(body.size()) + 1)) {
  (void)body_.Append(body);
}

bool DetachedExchange::Attach(std::shared_ptr<http::Exchange> client) {
  std::function<void()> on_closed;
  std::shared_ptr<http::Exchange> to = client;
  {
    std::lock_guard lock(mutex_);
    if (client_ || given_up_) return false;
    client_ = std::move(client);
    if (facts_) to->Note(*std::exchange(facts_, std::nullopt));
    if (started_ && !streaming_) {
      to->Respond(std::move(head_));
    } else if (started_) {
      to->StartStream(std::move(head_));
      if (!pending_.empty()) to->Write(std::exchange(pending_, {}));
      if (ended_) to->End();
    }
    if (!ended_) on_closed = std::move(on_closed_);
    on_closed_ = nullptr;
  }
  if (on_closed) to->OnClosed(std::move(on_closed));
  return true;
}

void DetachedExchange::GiveUp() {
  std::function<void()> on_closed;
  {
    std::lock_guard lock(mutex_);
    if (client_ || given_up_) return;
    given_up_ = true;
    pending_ = {};
    if (!ended_) on_closed.swap(on_closed_);
    on_closed_ = nullptr;
  }
  if (on_closed) on_closed();
}

bool DetachedExchange::attached() const {
  std::lock_guard lock(mutex_);
  return client_ != nullptr;
}

void DetachedExchange::Note(http::RequestFacts facts) {
  std::lock_guard lock(mutex_);
  if (client_)
    client_->Note(std::move(facts));
  else
    facts_ = std::move(facts);
}

http::Body DetachedExchange::TakeBody() {
  std::lock_guard lock(mutex_);
  return std::move(body_);
}

void DetachedExchange::Respond(http::HttpResponse response) {
  std::lock_guard lock(mutex_);
  if (started_) return;
  started_ = ended_ = true;
  if (client_)
    client_->Respond(std::move(response));
  else
    head_ = std::move(response);
}

void DetachedExchange::StartStream(http::HttpResponse head) {
  std::lock_guard lock(mutex_);
  if (started_) return;
  started_ = streaming_ = true;
  if (client_)
    client_->StartStream(std::move(head));
  else
    head_ = std::move(head);
}

void DetachedExchange::Write(std::string_view bytes) {
  std::lock_guard lock(mutex_);
  if (!streaming_ || ended_ || given_up_) return;
  if (client_)
    client_->Write(bytes);
  else
    pending_ += bytes;
}

void DetachedExchange::End() {
  std::lock_guard lock(mutex_);
  if (!streaming_ || ended_) return;
  ended_ = true;
  if (client_) client_->End();
}

void DetachedExchange::Abort() {
  std::lock_guard lock(mutex_);
  if (!started_ || ended_) return;
  ended_ = true;
  if (client_) client_->Abort();
}

int64_t DetachedExchange::unsent() const {
  std::lock_guard lock(mutex_);
  return client_ ? client_->unsent() : static_cast<int64_t>(pending_.size());
}

void DetachedExchange::WhenSent(std::function<void()> callback) {
  std::shared_ptr<http::Exchange> client;
  {
    std::lock_guard lock(mutex_);
    client = client_;
  }
  if (client) return client->WhenSent(std::move(callback));
  callback();
}

void DetachedExchange::OnClosed(std::function<void()> callback) {
  std::shared_ptr<http::Exchange> client;
  {
    std::lock_guard lock(mutex_);
    if (!given_up_ && !client_) {
      if (!ended_) on_closed_.swap(callback);
      return;
    }
    client = client_;
  }
  if (client) return client->OnClosed(std::move(callback));
  if (callback) callback();
}

bool DetachedExchange::closed() const {
  std::lock_guard lock(mutex_);
  return client_ ? client_->closed() : given_up_;
}

}  // namespace tactus::serve
