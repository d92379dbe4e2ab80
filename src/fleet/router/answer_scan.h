// Scans an answer as it passes: counts the events with content, reads the usage, and detects how it ends and whether
// the sequence has moved to another replica. Comments of event streams that are meant for the router are not passed on,
// nor are events after [DONE]. Events are passed on when they are complete, so that a stream that breaks off never ends
// inside an event.
//
// Memory: an incomplete event, up to kEventBytes; the rest of a longer one is passed on as it arrives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tactus::fleet {

inline constexpr size_t kEventBytes = 256 << 10;

// Where a stream continues, from a comment ": migrated {"to": URL, "ticket": ...}" at its end
// (docs/concepts/migration.md).
struct Moved {
  std::string url, ticket;
};
// The form of a replica's tickets: up to 64 digits, letters and '-'.
bool ValidTicket(std::string_view ticket);

class AnswerScan {
 public:
  // Scans bytes of an event stream; returns those for the client, valid until the next call.
  std::string_view Stream(std::string_view bytes);
  // The stream has ended: returns the rest, an event without the blank line that should have ended it.
  std::string_view Rest();
  // Scans a whole body that is not an event stream.
  void Whole(std::string_view body) { FindUsage(body); }

  // Number of events with data that have passed, without the closing [DONE] and errors.
  int64_t events() const { return events_; }
  int64_t finishes() const { return finishes_; }  // choices with a reason for their end (finish_reason)
  bool done() const { return done_; }             // [DONE], an API's last event or an error has passed
  bool failed() const { return failed_; }         // an error has passed
  bool in_event() const { return in_event_; }     // a part of an event has passed
  // An event too long to be scanned has passed: it may have been the last one.
  bool unread() const { return unread_; }
  // The data of an error that came before any event and was not passed on: the client received nothing. Empty: none.
  const std::string& first_error() const { return first_error_; }
  const std::optional<Moved>& moved() const { return moved_; }
  // From the usage object; 0: not present.
  int64_t prompt_tokens() const { return prompt_tokens_; }
  // From the usage object; otherwise the number of events, plus `before` events from another replica.
  int64_t output_tokens(int64_t before = 0) const {
    return completion_tokens_ > 0 ? completion_tokens_ : before + events_;
  }

 private:
  bool Event(std::string_view event);
  bool Data(std::string_view name, std::string_view data, bool* counts);
  void FindUsage(std::string_view text);
  void FindFinishes(std::string_view text);

  std::string partial_;  // an incomplete event
  size_t line_ = 0;      // where its last line begins
  std::string kept_;     // text for the client that is not contiguous in the input
  bool in_event_ = false, in_line_ = false, unread_ = false;
  int64_t events_ = 0, finishes_ = 0, prompt_tokens_ = 0, completion_tokens_ = 0;
  bool done_ = false, failed_ = false, closed_ = false;  // closed_: by [DONE]
  std::string first_error_;
  std::optional<Moved> moved_;
};

}  // namespace tactus::fleet
