// A request's body and the total bytes of all bodies in memory: bodies are the only part of a request that may be
// large, so their bytes are counted from arrival until their owner frees them.
//
// Thread rule: BodyTotal is for any thread; a Body is used by one thread at a time, and may outlive the server.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tactus::http {

class BodyTotal {
 public:
  explicit BodyTotal(int64_t limit_bytes) : limit_(limit_bytes) {}
  // False, with nothing added, if the total would exceed the limit.
  bool Add(int64_t bytes);
  void Remove(int64_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }
  int64_t held() const { return held_.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  void SetLimit(int64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }  // existing bodies stay

 private:
  std::atomic<int64_t> limit_;
  std::atomic<int64_t> held_{0};
};

// Subtracts its bytes from the total when it is destroyed.
class Body {
 public:
  Body() = default;  // empty; Append fails
  explicit Body(std::shared_ptr<BodyTotal> total) : total_(std::move(total)) {}
  Body(Body&& other) noexcept : total_(std::move(other.total_)), text_(std::move(other.text_)) { other.text_.clear(); }
  Body& operator=(Body&& other) noexcept;
  ~Body() { Release(); }

  std::string_view text() const { return text_; }
  int64_t bytes() const { return static_cast<int64_t>(text_.size()); }
  // The announced size: memory is reserved up to it, but never more than twice the bytes received.
  void Expect(uint64_t bytes) { expected_ = bytes; }
  // False if the total has no room for the bytes.
  bool Append(std::string_view bytes);
  // Moves out the bytes received so far, which are no longer counted.
  std::string TakeText();

 private:
  void Release() {
    if (total_ && !text_.empty()) total_->Remove(bytes());
  }

  std::shared_ptr<BodyTotal> total_;
  std::string text_;
  uint64_t expected_ = ~uint64_t{0};
};

}  // namespace tactus::http
