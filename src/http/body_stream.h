// Bodies that are too large to be held: a request's goes to a receiver as it arrives, an answer's comes from a source
// as the client takes it. One piece of each is in memory at a time.
//
// Thread rule: Take, Whole and Next are called on the io thread and must not block. What they are given to call back is
// called once, on any thread; the next piece comes, or is asked for, after that. Both may end on any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "http/message.h"

namespace tactus::http {

class Exchange;

// Ends without Whole where the client has gone or the body was refused.
class BodyReceiver {
 public:
  virtual ~BodyReceiver() = default;
  virtual int64_t max_bytes() const = 0;             // of the whole body; beyond it 413
  virtual const char* max_bytes_option() const = 0;  // "--max-file-size", for that answer
  // With a refusal nothing more is read: it is the answer, and the connection's last.
  using Taken = std::function<void(std::optional<HttpResponse> refusal)>;
  virtual void Take(std::string piece, Taken taken) = 0;
  // All of it has been taken: answers, in the handler's place.
  virtual void Whole(std::shared_ptr<Exchange> exchange) = 0;
};

class BodySource {
 public:
  virtual ~BodySource() = default;
  virtual int64_t bytes() const = 0;
  // A piece of at least one byte; nothing: it cannot be read, and the connection closes before the end of the answer.
  using Come = std::function<void(std::optional<std::string> piece)>;
  virtual void Next(Come come) = 0;
};

}  // namespace tactus::http
