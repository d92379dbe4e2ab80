#include "http/body.h"

#include <algorithm>
#include <utility>

namespace tactus::http {

bool BodyTotal::Add(int64_t bytes) {
  const int64_t before = held_.fetch_add(bytes, std::memory_order_relaxed);
  if (before + bytes <= limit()) return true;
  Remove(bytes);
  return false;
}

Body& Body::operator=(Body&& other) noexcept {
  if (this == &other) return *this;
  Release();
  total_ = std::move(other.total_);
  text_ = std::move(other.text_);
  other.text_.clear();
  expected_ = other.expected_;
  return *this;
}

bool Body::Append(std::string_view bytes) {
  if (!total_ || !total_->Add(static_cast<int64_t>(bytes.size()))) return false;
  const size_t needed = text_.size() + bytes.size();
  if (needed > text_.capacity()) {
    const auto announced = static_cast<size_t>(std::max<uint64_t>(expected_, needed));
    text_.reserve(std::min(std::max(2 * text_.capacity(), needed), announced));
  }
  text_ += bytes;
  return true;
}

std::string Body::TakeText() {
  Release();
  return std::exchange(text_, {});
}

}  // namespace tactus::http
