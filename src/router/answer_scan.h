// Reads an answer as it passes: how much of it tells the client something, what it says of its tokens, and whether the
// sequence has moved to another replica. Comments of event streams that are meant for the router go no further.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tactus::router {

// Where a stream goes on, by a comment ": migrated {"to": URL, "ticket": ...}" at its end (docs/migration.md).
struct Moved {
  std::string url, ticket;
};

class AnswerScan {
 public:
  // Bytes of an event stream; returns those that are for the client.
  std::string_view Stream(std::string_view bytes);
  // A whole body that is no event stream.
  void Whole(std::string_view body) { FindUsage(body); }

  // Events with data that have passed, the closing [DONE] not counted.
  int64_t events() const { return events_; }
  bool done() const { return done_; }  // [DONE] has passed, or an error
  const std::optional<Moved>& moved() const { return moved_; }
  // Of the usage object; 0: it was not there.
  int64_t prompt_tokens() const { return prompt_tokens_; }
  // Of the usage object; else an event stands for a token.
  int64_t output_tokens() const { return completion_tokens_ > 0 ? completion_tokens_ : events_; }

 private:
  void Line(std::string_view line);
  void FindUsage(std::string_view text);

  std::string line_;  // the beginning of one that has not ended; of a long one the beginning
  std::string kept_;  // for the client, where bytes were taken out
  bool in_line_ = false, holding_ = false;
  int64_t events_ = 0, prompt_tokens_ = 0, completion_tokens_ = 0;
  bool done_ = false, drop_blank_ = false;
  std::optional<Moved> moved_;
};

}  // namespace tactus::router
