#include "router/answer_scan.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace tactus::router {
namespace {

constexpr size_t kLineBytes = 64 << 10;  // that are looked at
constexpr std::string_view kMoved = ": migrated ";

// The number after the last `"name":`.
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

}  // namespace

// Passes the bytes on as they are, but for lines that begin with ':', which wait for their end.
std::string_view AnswerScan::Stream(std::string_view bytes) {
  const bool plain = !holding_ && !drop_blank_ && (in_line_ || bytes.empty() || bytes[0] != ':') &&
                     bytes.find("\n:") == std::string_view::npos;
  kept_.clear();
  for (size_t at = 0; at < bytes.size();) {
    const size_t newline = bytes.find('\n', at);
    const size_t end = newline == std::string_view::npos ? bytes.size() : newline + 1;
    const std::string_view part = bytes.substr(at, end - at);
    at = end;
    if (!in_line_) holding_ = part[0] == ':';
    if (holding_ && line_.size() + part.size() > kLineBytes) {  // no comment of ours
      holding_ = false;
      kept_ += line_;
    }
    if (line_.size() < kLineBytes) line_ += part.substr(0, kLineBytes - line_.size());
    in_line_ = newline == std::string_view::npos;
    if (!plain && !holding_) {
      const bool blank = part == "\n" || part == "\r\n";
      if (!(drop_blank_ && blank)) kept_ += part;
      drop_blank_ = false;
    }
    if (in_line_) continue;
    if (holding_) {
      if (line_.starts_with(kMoved))
        drop_blank_ = true;
      else
        kept_ += line_;
    }
    Line(line_);
    line_.clear();
    holding_ = false;
  }
  return plain ? bytes : std::string_view(kept_);
}

void AnswerScan::Line(std::string_view line) {
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (line.starts_with(kMoved)) {
    moved_ = ParseMoved(line.substr(kMoved.size()));
    return;
  }
  if (!line.starts_with("data:")) return;
  std::string_view data = line.substr(5);
  if (data.starts_with(" ")) data.remove_prefix(1);
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  ++events_;
  if (data.starts_with("{\"error\"")) done_ = true;
  FindUsage(data);
}

void AnswerScan::FindUsage(std::string_view text) {
  if (const int64_t tokens = LastNumber(text, "\"completion_tokens\""); tokens > 0) completion_tokens_ = tokens;
  if (const int64_t tokens = LastNumber(text, "\"prompt_tokens\""); tokens > 0) prompt_tokens_ = tokens;
}

}  // namespace tactus::router
