#include "fleet/router/answer_scan.h"

#include <algorithm>
#include <cstdlib>

#include "base/json.h"
#include "base/json_text.h"

namespace tactus::fleet {
namespace {

constexpr std::string_view kMoved = ": migrated ";

// The number after the last occurrence of `name`; 0: none.
int64_t LastNumber(std::string_view text, std::string_view name) {
  const size_t at = text.rfind(name);
  if (at == std::string_view::npos) return 0;
  size_t value = at + name.size();
  while (value < text.size() && (text[value] == ' ' || text[value] == ':')) ++value;
  int64_t number = 0;
  for (; value < text.size() && text[value] >= '0' && text[value] <= '9' && number < 1'000'000'000; ++value)
    number = number * 10 + (text[value] - '0');
  return number;
}

std::optional<Moved> ParseMoved(std::string_view text) {
  const auto parsed = json_text::ParseJson(text, {.max_values = 100});
  if (!parsed.ok() || !parsed->is_object()) return std::nullopt;
  const auto to = parsed->find("to"), ticket = parsed->find("ticket");
  if (to == parsed->end() || ticket == parsed->end() || !to->is_string() || !ticket->is_string()) return std::nullopt;
  return Moved{to->get<std::string>(), ticket->get<std::string>()};
}

// The string that begins at `at`, without its quotes; *end: the index after it.
std::string_view StringAt(std::string_view text, size_t at, size_t* end) {
  const size_t begin = at + 1;
  for (at = begin; at < text.size() && text[at] != '"'; ++at) at += text[at] == '\\';
  *end = std::min(at + 1, text.size());
  return text.substr(begin, std::min(at, text.size()) - begin);
}

// The index after the value that begins at `at`: of a comma or of the end of the object.
size_t BehindValue(std::string_view text, size_t at) {
  for (int depth = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      StringAt(text, at, &at);
      --at;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return at;
      --depth;
    } else if (c == ',' && depth == 0) {
      return at;
    }
  }
  return text.size();
}

// What an event's data states about itself: members of the object itself, in any order. The text need not be JSON.
struct Kind {
  std::string_view type, object;
  bool has_error = false;  // a member "error" that is not null
};

Kind KindOf(std::string_view data) {
  Kind kind;
  size_t at = data.find_first_not_of(" \t");
  if (at == std::string_view::npos || data[at] != '{') return kind;
  for (at = data.find_first_not_of(", \t", at + 1); at < data.size() && data[at] == '"';
       at = data.find_first_not_of(", \t", BehindValue(data, at))) {
    const std::string_view name = StringAt(data, at, &at);
    at = data.find_first_not_of(": \t", at);
    if (at >= data.size()) break;
    size_t end = 0;
    const std::string_view text = data[at] == '"' ? StringAt(data, at, &end) : std::string_view();
    if (name == "type") kind.type = text;
    if (name == "object") kind.object = text;
    if (name == "error") kind.has_error = !data.substr(at).starts_with("null");
  }
  return kind;
}

bool IsErrorType(std::string_view type) {
  return type == "error" || type == "response.failed";
}

// The last event of APIs whose streams do not end with [DONE].
bool IsLastType(std::string_view type) {
  return type == "message_stop" || type == "response.completed" || type == "response.incomplete";
}

// Most events are parts of an answer, and need not be parsed.
bool MayEnd(std::string_view data) {
  return data.find("\"error") != std::string_view::npos || data.find("\"response.") != std::string_view::npos ||
         data.find("\"message_stop\"") != std::string_view::npos;
}

// Parts of a text, as one view if they are contiguous, otherwise copied.
class Joined {
 public:
  Joined(std::string_view text, std::string* kept) : text_(text), kept_(*kept) { kept_.clear(); }
  void Add(size_t begin, size_t end) {
    if (begin == end) return;
    if (!copied_ && end_ > begin_ && end_ != begin) {
      kept_ = text_.substr(begin_, end_ - begin_);
      copied_ = true;
    }
    if (copied_)
      kept_ += text_.substr(begin, end - begin);
    else if (end_ == begin_)
      begin_ = begin;
    end_ = end;
  }
  std::string_view view() const { return copied_ ? std::string_view(kept_) : text_.substr(begin_, end_ - begin_); }

 private:
  const std::string_view text_;
  std::string& kept_;
  size_t begin_ = 0, end_ = 0;
  bool copied_ = false;
};

}  // namespace

bool ValidTicket(std::string_view ticket) {
  return !ticket.empty() && ticket.size() <= 64 && std::all_of(ticket.begin(), ticket.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
  });
}

std::string_view AnswerScan::Stream(std::string_view bytes) {
  const bool joined = !partial_.empty();
  size_t look = 0, line = 0, event = 0;
  if (joined) {
    look = partial_.size();
    line = line_;
    partial_ += bytes;
  }
  const std::string_view text = joined ? std::string_view(partial_) : bytes;
  Joined passed(text, &kept_);
  for (size_t newline; (newline = text.find('\n', look)) != std::string_view::npos;) {
    const std::string_view whole = text.substr(line, newline - line);
    const bool blank = !in_line_ && (whole.empty() || whole == "\r");
    in_line_ = false;
    line = look = newline + 1;
    if (!blank) continue;
    if (in_event_ || Event(text.substr(event, line - event))) passed.Add(event, line);
    in_event_ = false;
    event = line;
  }
  if (!in_event_ && text.size() - event > kEventBytes) {
    in_event_ = unread_ = true;
    ++events_;
  }
  if (in_event_) {
    in_line_ |= text.size() > line && text.substr(line) != "\r";
    passed.Add(event, text.size());
    event = line = text.size();
  }
  const std::string_view view = passed.view();
  line_ = line - event;
  if (!joined) {
    partial_ = text.substr(event);
    return view;
  }
  if (view.data() != kept_.data()) kept_ = view;
  partial_.erase(0, event);
  return kept_;
}

std::string_view AnswerScan::Rest() {
  kept_ = std::move(partial_);
  partial_.clear();
  line_ = 0;
  if (kept_.empty() || !Event(kept_)) return {};
  return kept_;
}

// Returns whether the event is for the client.
bool AnswerScan::Event(std::string_view event) {
  bool counts = false, pass = true;
  std::string_view name;  // of the event
  for (size_t at = 0; at < event.size();) {
    const size_t end = std::min(event.find('\n', at), event.size());
    std::string_view line = event.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (at == 0 && line.starts_with(kMoved)) {
      moved_ = ParseMoved(line.substr(kMoved.size()));
      pass = false;
    } else if (line.starts_with("event:")) {
      name = line.substr(line.starts_with("event: ") ? 7 : 6);
    } else if (line.starts_with("data:")) {
      pass = Data(name, line.substr(line.starts_with("data: ") ? 6 : 5), &counts) && pass;
    }
    at = end + 1;
  }
  events_ += counts;
  if (counts) unread_ = false;  // an event that could not be read was not the last
  return pass;
}

bool AnswerScan::Data(std::string_view name, std::string_view data, bool* counts) {
  if (closed_) return false;
  if (data == "[DONE]") {
    done_ = closed_ = true;
    return true;
  }
  const Kind kind = MayEnd(data) ? KindOf(data) : Kind();
  if (kind.has_error || kind.object == "error" || IsErrorType(kind.type) || IsErrorType(name)) {
    done_ = failed_ = true;
    if (events_ > 0) return true;
    first_error_ = data;
    return false;
  }
  *counts = true;
  done_ = done_ || IsLastType(kind.type) || IsLastType(name);
  FindFinishes(data);
  FindUsage(data);
  return true;
}

// Inside a string its quotes would be escaped.
void AnswerScan::FindFinishes(std::string_view text) {
  constexpr std::string_view kName = "\"finish_reason\"";
  for (size_t at = text.find(kName); at != std::string_view::npos; at = text.find(kName, at)) {
    at = text.find_first_not_of(": \t", at + kName.size());
    finishes_ += at != std::string_view::npos && text[at] == '"';
  }
}

void AnswerScan::FindUsage(std::string_view text) {
  if (text.find("_tokens\"") == std::string_view::npos) return;  // as in most events
  for (const char* name : {"\"completion_tokens\"", "\"output_tokens\""}) {
    if (const int64_t tokens = LastNumber(text, name); tokens > 0) completion_tokens_ = tokens;
  }
  for (const char* name : {"\"prompt_tokens\"", "\"input_tokens\""}) {
    // If cached tokens are not counted among the input tokens, they are stated beside them.
    const int64_t tokens = LastNumber(text, name) + LastNumber(text, "\"cache_read_input_tokens\"");
    if (tokens > 0) prompt_tokens_ = tokens;
  }
}

}  // namespace tactus::fleet
