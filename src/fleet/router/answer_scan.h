// Reads an answer as it passes: how much of it tells the client something, what it says of its tokens, how it ends, and
// whether the sequence has moved to another replica. Comments of event streams that are meant for the router go no
// further, nor do events behind [DONE]. Events pass on when they are whole, so that what ends an answer never ends it
// in the midst of an event.
//
// Memory: an event that has not ended, up to kEventBytes; of a longer one the rest passes as it comes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tactus::fleet {

inline constexpr size_t kEventBytes = 256 << 10;

// Where a stream goes on, by a comment ": migrated {"to": URL, "ticket": ...}" at its end (docs/migration.md).
struct Moved {
  std::string url, ticket;
};
// What a replica gives as a ticket: up to 64 digits, letters and '-'.
bool ValidTicket(std::string_view ticket);

class AnswerScan {
 public:
  // Bytes of an event stream; returns those that are for the client, until the next call.
  std::string_view Stream(std::string_view bytes);
  // The stream has ended: what is left, an event without the blank line that should have ended it.
  std::string_view Rest();
  // A whole body that is no event stream.
  void Whole(std::string_view body) { FindUsage(body); }

  // Events with data that have passed; the closing [DONE] and errors are not counted.
  int64_t events() const { return events_; }
  int64_t finishes() const { return finishes_; }  // choices that have said why they ended (finish_reason)
  bool done() const { return done_; }             // [DONE] has passed, an API's last event, or an error
  bool failed() const { return failed_; }         // an error has passed
  bool in_event() const { return in_event_; }     // a part of an event has passed
  // An event has passed that was too long to be looked at: it may have been the last one.
  bool unread() const { return unread_; }
  // The data of an error that came before any event and was not passed on: nothing was told. Empty: none.
  const std::string& first_error() const { return first_error_; }
  const std::optional<Moved>& moved() const { return moved_; }
  // Of the usage object; 0: it was not there.
  int64_t prompt_tokens() const { return prompt_tokens_; }
  // Of the usage object; else an event stands for a token, with `before` that came from another replica.
  int64_t output_tokens(int64_t before = 0) const {
    return completion_tokens_ > 0 ? completion_tokens_ : before + events_;
  }

 private:
  bool Event(std::string_view event);
  bool Data(std::string_view name, std::string_view data, bool* counts);
  void FindUsage(std::string_view text);
  void FindFinishes(std::string_view text);

  std::string partial_;  // an event that has not ended
  size_t line_ = 0;      // where its last line begins
  std::string kept_;     // for the client, where it is no piece of what came
  bool in_event_ = false, in_line_ = false, unread_ = false;
  int64_t events_ = 0, finishes_ = 0, prompt_tokens_ = 0, completion_tokens_ = 0;
  bool done_ = false, failed_ = false, closed_ = false;  // closed_: by [DONE]
  std::string first_error_;
  std::optional<Moved> moved_;
};

}  // namespace tactus::fleet
