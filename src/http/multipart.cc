#include "http/multipart.h"

#include <fmt/format.h>

#include <algorithm>

#include "http/message.h"

namespace tactus::http {
namespace {

constexpr size_t kMostBoundaryBytes = 70;  // RFC 2046, 5.1.1
constexpr size_t kMostHeaderBytes = 8 << 10;
constexpr int kMostParts = 64;
constexpr std::string_view kLine = "\r\n", kHeadersEnd = "\r\n\r\n";

Status Malformed(std::string why) {
  return InvalidArgument("malformed multipart/form-data: " + std::move(why));
}

// Iterates over the parameters of a header's value, `; name=value; name="value"`.
class Parameters {
 public:
  explicit Parameters(std::string_view text) : rest_(text.substr(std::min(text.find(';'), text.size()))) {}

  // False: no parameter is left.
  bool Next(std::string* name, std::string* value) {
    while (!rest_.empty() && (rest_.front() == ';' || rest_.front() == ' ' || rest_.front() == '\t'))
      rest_.remove_prefix(1);
    if (rest_.empty()) return false;
    const size_t end = std::min(rest_.find_first_of("=;"), rest_.size());
    *name = Trimmed(rest_.substr(0, end));
    rest_.remove_prefix(end);
    value->clear();
    if (rest_.empty() || rest_.front() == ';') return true;
    rest_.remove_prefix(1);
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
    if (!rest_.empty() && rest_.front() == '"')
      Quoted(value);
    else
      *value = Trimmed(rest_.substr(0, std::min(rest_.find(';'), rest_.size())));
    rest_.remove_prefix(std::min(rest_.find(';'), rest_.size()));
    return true;
  }

 private:
  void Quoted(std::string* value) {
    rest_.remove_prefix(1);
    while (!rest_.empty() && rest_.front() != '"') {
      // Only quotes and backslashes can be escaped: some clients send C:\folder unescaped.
      if (rest_.front() == '\\' && rest_.size() > 1 && (rest_[1] == '"' || rest_[1] == '\\')) rest_.remove_prefix(1);
      value->push_back(rest_.front());
      rest_.remove_prefix(1);
    }
    if (!rest_.empty()) rest_.remove_prefix(1);
  }

  std::string_view rest_;
};

Result<PartHead> ParseHead(std::string_view headers) {
  std::optional<PartHead> head;
  while (!headers.empty()) {
    const std::string_view line = headers.substr(0, headers.find(kLine));
    headers.remove_prefix(std::min(line.size() + kLine.size(), headers.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return Malformed("a part has a header line without ':'");
    if (!EqualsIgnoreCase(line.substr(0, colon), "Content-Disposition")) continue;
    const std::string_view value = Trimmed(line.substr(colon + 1));
    if (head || !EqualsIgnoreCase(Trimmed(value.substr(0, value.find(';'))), "form-data"))
      return Malformed("a part needs one Content-Disposition: form-data");
    head.emplace();
    bool named = false;
    Parameters parameters(value);
    std::string name, text;
    while (parameters.Next(&name, &text)) {
      if (EqualsIgnoreCase(name, "name")) head->name = text, named = true;
      if (EqualsIgnoreCase(name, "filename")) head->filename = text;
    }
    if (!named) return Malformed("a part has no name");
  }
  if (!head) return Malformed("a part has no Content-Disposition");
  return std::move(*head);
}

}  // namespace

Result<std::string> MultipartBoundary(std::string_view content_type) {
  const std::string_view type = Trimmed(content_type.substr(0, content_type.find(';')));
  std::string boundary, name, value;
  if (EqualsIgnoreCase(type, "multipart/form-data")) {
    Parameters parameters(content_type);
    while (boundary.empty() && parameters.Next(&name, &value)) {
      if (EqualsIgnoreCase(name, "boundary")) boundary = value;
    }
  }
  if (boundary.empty() || boundary.size() > kMostBoundaryBytes) {
    return InvalidArgument(
        fmt::format("Content-Type: give multipart/form-data with a boundary of 1 to {} bytes", kMostBoundaryBytes),
        "Content-Type");
  }
  return boundary;
}

// The line break before the body's first boundary is not sent, so it is prepended here.
MultipartReader::MultipartReader(std::string_view boundary, PartSink* sink)
    : delimiter_("\r\n--" + std::string(boundary)), sink_(*sink), held_(kLine) {}

Status MultipartReader::Feed(std::string_view bytes) {
  held_ += bytes;
  bool more = true;
  while (more) TACTUS_RETURN_IF_ERROR(Step(&more));
  return Status();
}

Status MultipartReader::Step(bool* more) {
  *more = false;
  switch (state_) {
    case State::kBoundary:
      if (held_.compare(0, std::min(held_.size(), delimiter_.size()), delimiter_, 0,
                        std::min(held_.size(), delimiter_.size())) != 0)
        return Malformed("the body does not begin with its boundary");
      if (held_.size() < delimiter_.size()) return Status();
      held_.erase(0, delimiter_.size());
      state_ = State::kBoundaryEnd;
      *more = true;
      return Status();
    case State::kBoundaryEnd:
      return ReadBoundaryEnd(more);
    case State::kHeaders:
      return ReadHeaders(more);
    case State::kData:
      return ReadData(more);
    case State::kEpilogue:
      held_.clear();
      return Status();
  }
  return Status();
}

Status MultipartReader::ReadBoundaryEnd(bool* more) {
  if (held_.size() < kLine.size()) return Status();
  const bool last = held_.compare(0, 2, "--") == 0;
  if (!last && held_.compare(0, kLine.size(), kLine) != 0)
    return Malformed("a boundary is followed by neither a line break nor '--'");
  if (!last && ++parts_ > kMostParts) return Malformed(fmt::format("more than {} parts", kMostParts));
  // The line break stays in held_, so that empty headers end at once.
  if (last) held_.clear();
  state_ = last ? State::kEpilogue : State::kHeaders;
  *more = !last;
  return Status();
}

Status MultipartReader::ReadHeaders(bool* more) {
  const size_t end = held_.find(kHeadersEnd);
  if (end > kMostHeaderBytes && (end != std::string::npos || held_.size() > kMostHeaderBytes))
    return Malformed(fmt::format("a part's headers are longer than {} bytes", kMostHeaderBytes));
  if (end == std::string::npos) return Status();
  const std::string_view headers = std::string_view(held_).substr(0, end);
  TACTUS_ASSIGN_OR_RETURN(const PartHead head, ParseHead(headers.substr(std::min(kLine.size(), headers.size()))));
  held_.erase(0, end + kHeadersEnd.size());
  TACTUS_RETURN_IF_ERROR(sink_.OnPart(head));
  state_ = State::kData;
  *more = true;
  return Status();
}

Status MultipartReader::ReadData(bool* more) {
  const size_t end = held_.find(delimiter_);
  const size_t kept = delimiter_.size() - 1;  // may be the beginning of a boundary
  const size_t data = end != std::string::npos ? end : held_.size() > kept ? held_.size() - kept : 0;
  if (data > 0) TACTUS_RETURN_IF_ERROR(sink_.OnData(std::string_view(held_).substr(0, data)));
  held_.erase(0, end != std::string::npos ? end + delimiter_.size() : data);
  if (end == std::string::npos) return Status();
  state_ = State::kBoundaryEnd;
  *more = true;
  return sink_.OnPartEnd();
}

Status MultipartReader::Finish() const {
  return state_ == State::kEpilogue ? Status() : Malformed("the body ends before its closing boundary");
}

}  // namespace tactus::http
