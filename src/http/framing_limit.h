// Bounds the bytes of a message after its head that are not body: sizes and extensions of chunks, trailers. Beast
// bounds only the body: it waits for the end of a line or of all trailers at any length, and its fields throw at 64
// KiB.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tactus::http {

class FramingLimit {
 public:
  // `bytes`: at most 64 KiB.
  explicit FramingLimit(int64_t bytes) : bytes_(bytes) {}

  // Counts `parsed` more bytes of the message, which has `body_bytes` of body so far. False: too many bytes are not
  // body.
  bool Add(size_t parsed, int64_t body_bytes) {
    read_bytes_ += static_cast<int64_t>(parsed);
    return read_bytes_ - body_bytes <= bytes_ + kPerBodyByte * body_bytes;
  }
  // How many of `wanted` bytes may be read while `waiting` bytes have no end of line yet; 0: the line is too long.
  size_t Room(size_t waiting, size_t wanted) const {
    return std::min(wanted, static_cast<size_t>(std::max<int64_t>(0, bytes_ - static_cast<int64_t>(waiting))));
  }

 private:
  static constexpr int64_t kPerBodyByte = 8;  // a chunk of one byte has five more

  const int64_t bytes_;
  int64_t read_bytes_ = 0;
};

}  // namespace tactus::http
