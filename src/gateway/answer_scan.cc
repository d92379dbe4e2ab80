#include "gateway/answer_scan.h"

#include <algorithm>
#include <limits>

namespace tactus::gateway {
namespace {

constexpr std::string_view kData = "data:";
constexpr std::string_view kKey = "\"completion_tokens\"";
constexpr size_t kTail = 64;  // the key, a colon, blanks, and a number of 19 digits

bool IsBlank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

void AnswerScan::Add(std::string_view bytes) {
  if (form_ == Form::kUnknown || bytes.empty()) return;
  if (form_ == Form::kEvents) CountEvents(bytes);
  FindUsage(bytes);
}

void AnswerScan::CountEvents(std::string_view bytes) {
  while (!bytes.empty()) {
    if (line_match_ == std::string_view::npos) {
      const size_t end = bytes.find('\n');
      if (end == std::string_view::npos) return;
      bytes.remove_prefix(end + 1);
      line_match_ = 0;
      continue;
    }
    if (bytes[0] == '\n') {
      line_match_ = 0;
    } else if (bytes[0] != kData[line_match_]) {
      line_match_ = std::string_view::npos;
    } else if (++line_match_ == kData.size()) {
      ++events_;
      line_match_ = std::string_view::npos;
    }
    bytes.remove_prefix(1);
  }
}

void AnswerScan::FindUsage(std::string_view bytes) {
  std::string joined;
  std::string_view text = bytes;
  if (!tail_.empty()) {
    joined = tail_;
    joined += bytes;
    text = joined;
  }
  // The last one that is whole: some servers count on in every event.
  for (size_t at = text.find(kKey); at != std::string_view::npos; at = text.find(kKey, at + 1)) {
    size_t i = at + kKey.size();
    while (i < text.size() && IsBlank(text[i])) ++i;
    if (i >= text.size() || text[i] != ':') continue;
    ++i;
    while (i < text.size() && IsBlank(text[i])) ++i;
    int64_t value = 0;
    size_t digits = 0;
    for (; i < text.size() && IsDigit(text[i]) && digits < 10; ++i, ++digits) {
      value = value * 10 + (text[i] - '0');
    }
    // A number at the end may go on in the next piece, which sees it again; one that is too long is none.
    if (digits > 0 && i < text.size() && !IsDigit(text[i])) completion_tokens_ = value;
  }
  const size_t kept = std::min(text.size(), kTail);
  tail_.assign(text.substr(text.size() - kept));  // a copy before `joined` goes
}

int32_t AnswerScan::output_tokens() const {
  int64_t tokens = completion_tokens_;
  if (tokens < 0 && form_ == Form::kEvents) tokens = std::max<int64_t>(0, events_ - 1);  // "[DONE]"
  return static_cast<int32_t>(std::min<int64_t>(tokens, std::numeric_limits<int32_t>::max()));
}

}  // namespace tactus::gateway
