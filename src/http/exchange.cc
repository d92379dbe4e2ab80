#include "http/exchange.h"

#include <utility>

namespace tactus::http {

Body ExchangeBuffer::TakeBody() {
  std::lock_guard lock(mutex_);
  return std::move(body_);
}

void ExchangeBuffer::Respond(HttpResponse response) {
  {
    std::lock_guard lock(mutex_);
    if (started_ || closed_) return;
    started_ = ended_ = true;
    head_ = std::move(response);
    on_closed_ = nullptr;
  }
  MakeDirty();
}

void ExchangeBuffer::StartStream(HttpResponse head) {
  {
    std::lock_guard lock(mutex_);
    if (started_ || closed_) return;
    started_ = streaming_ = true;
    head_ = std::move(head);
  }
  MakeDirty();
}

void ExchangeBuffer::Write(std::string_view bytes) {
  {
    std::lock_guard lock(mutex_);
    if (!streaming_ || ended_ || closed_) return;
    pending_ += bytes;
  }
  MakeDirty();
}

void ExchangeBuffer::End() {
  std::function<void()> released;
  {
    std::lock_guard lock(mutex_);
    if (!streaming_ || ended_) return;
    ended_ = true;
    released.swap(on_closed_);
    if (closed_) return;
  }
  MakeDirty();
}

void ExchangeBuffer::Abort() {
  {
    std::lock_guard lock(mutex_);
    if (!started_ || ended_) return;
    aborted_ = true;
  }
  End();
}

int64_t ExchangeBuffer::unsent() const {
  std::lock_guard lock(mutex_);
  return closed_ ? 0 : taken_bytes_ + static_cast<int64_t>(pending_.size());
}

void ExchangeBuffer::WhenSent(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    if (taken_bytes_ > 0 || !pending_.empty()) {
      when_sent_ = std::move(callback);
      return;
    }
  }
  callback();
}

void ExchangeBuffer::OnClosed(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (!closed_) {
      if (!ended_) on_closed_.swap(callback);
      return;
    }
  }
  if (callback) callback();
}

bool ExchangeBuffer::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

void ExchangeBuffer::Note(RequestFacts facts) {
  auto noted = std::make_shared<const RequestFacts>(std::move(facts));
  std::lock_guard lock(mutex_);
  facts_.swap(noted);
}

std::shared_ptr<const RequestFacts> ExchangeBuffer::facts() const {
  std::lock_guard lock(mutex_);
  return facts_;
}

bool WakeList::Call(std::function<void()> call) {
  std::lock_guard lock(mutex);
  if (!wake) return false;
  calls.push_back(std::move(call));
  if (calls.size() == 1 && dirty.empty()) wake();
  return true;
}

void ExchangeBuffer::MakeDirty() {
  {
    std::lock_guard lock(mutex_);
    if (dirty_) return;
    dirty_ = true;
  }
  std::lock_guard lock(wake_list_->mutex);
  if (!wake_list_->wake) return;
  wake_list_->dirty.push_back(shared_from_this());
  if (wake_list_->dirty.size() == 1 && wake_list_->calls.empty()) wake_list_->wake();
}

void ExchangeBuffer::Take(Output* output) {
  std::function<void()> sent;
  {
    std::lock_guard lock(mutex_);
    if (pending_.empty()) sent.swap(when_sent_);
    taken_bytes_ = 0;
  }
  if (sent) sent();
  std::lock_guard lock(mutex_);
  dirty_ = false;
  output->has_head = started_ && !head_taken_;
  if (output->has_head) {
    output->head = std::move(head_);
    head_taken_ = true;
  }
  output->streaming = streaming_;
  output->bytes = std::move(pending_);
  pending_.clear();
  taken_bytes_ = static_cast<int64_t>(output->bytes.size());
  output->ended = ended_;
  output->aborted = aborted_;
}

void ExchangeBuffer::ClientGone() {
  std::function<void()> callback;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    pending_.clear();
    pending_.shrink_to_fit();
    body_ = Body();  // not needed any more
    if (!ended_) callback.swap(on_closed_);
    on_closed_ = when_sent_ = nullptr;
  }
  if (callback) callback();
}

}  // namespace tactus::http
