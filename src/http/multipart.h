// Parses multipart/form-data (RFC 7578) as it arrives: parts are passed to a sink in pieces, and only a possible
// beginning of a boundary is kept. Strict: the body begins with its boundary and ends with its closing one.
//
// Thread rule: one thread at a time. Memory: the argument of Feed, one part's headers and one boundary.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tactus/status.h"

namespace tactus::http {

struct PartHead {
  std::string name;                     // name of the form's field
  std::optional<std::string> filename;  // as the client sent it, unchecked
};

class PartSink {
 public:
  virtual ~PartSink() = default;
  // An error that they return ends the parsing, and Feed returns it.
  virtual Status OnPart(const PartHead& head) = 0;
  virtual Status OnData(std::string_view bytes) = 0;  // data of the last part; never empty
  virtual Status OnPartEnd() = 0;
};

// The boundary in a Content-Type header. kInvalidArgument unless it is multipart/form-data with a boundary of 1 to 70
// bytes.
Result<std::string> MultipartBoundary(std::string_view content_type);

class MultipartReader {
 public:
  MultipartReader(std::string_view boundary, PartSink* sink);

  // kInvalidArgument: malformed. After an error nothing more may be fed.
  Status Feed(std::string_view bytes);
  // Call after the whole body: kInvalidArgument if its last part has no end.
  Status Finish() const;

 private:
  enum class State { kBoundary, kBoundaryEnd, kHeaders, kData, kEpilogue };
  // One step; `more`: another step may be possible without more input.
  Status Step(bool* more);
  Status ReadBoundaryEnd(bool* more);
  Status ReadHeaders(bool* more);
  Status ReadData(bool* more);

  const std::string delimiter_;  // CRLF, two dashes, the boundary
  PartSink& sink_;
  State state_ = State::kBoundary;
  std::string held_;
  int parts_ = 0;
};

}  // namespace tactus::http
