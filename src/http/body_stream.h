// Bodies that are too large for memory: a request's body is passed to a receiver as it arrives, an answer's body is
// read from a source as the client accepts it. One piece of each is in memory at a time.
//
// Thread rule: Take, Whole and Next are called on the io thread and must not block. Their callback is called once, on
// any thread; the next piece is passed or requested after that. Both may be destroyed on any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "http/message.h"

namespace tactus::http {

class Exchange;

// Destroyed without Whole if the client disconnects or the body is refused.
class BodyReceiver {
 public:
  virtual ~BodyReceiver() = default;
  virtual int64_t max_bytes() const = 0;             // limit for the whole body; beyond it 413
  virtual const char* max_bytes_option() const = 0;  // "--max-file-size", for the 413 answer
  // A refusal is the answer, and the connection's last; nothing more is read.
  using Taken = std::function<void(std::optional<HttpResponse> refusal)>;
  virtual void Take(std::string piece, Taken taken) = 0;
  // The whole body has been taken: answers in place of the handler.
  virtual void Whole(std::shared_ptr<Exchange> exchange) = 0;
};

class BodySource {
 public:
  virtual ~BodySource() = default;
  virtual int64_t bytes() const = 0;
  // A piece of at least one byte; nothing: reading failed, and the connection closes before the end of the answer.
  using Come = std::function<void(std::optional<std::string> piece)>;
  virtual void Next(Come come) = 0;
};

}  // namespace tactus::http
