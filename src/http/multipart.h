// Reads multipart/form-data (RFC 7578) as it arrives: parts go to a sink in pieces, of which nothing is kept but what
// may be the beginning of a boundary. Strict: the body begins with its boundary and ends with its closing one.
//
// Thread rule: one thread at a time. Memory: what Feed is given, one part's headers and one boundary.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tactus/status.h"

namespace tactus::http {

struct PartHead {
  std::string name;                     // of the form's field
  std::optional<std::string> filename;  // as the client says, whatever that is
};

class PartSink {
 public:
  virtual ~PartSink() = default;
  // What they return ends the reading, and comes out of Feed.
  virtual Status OnPart(const PartHead& head) = 0;
  virtual Status OnData(std::string_view bytes) = 0;  // of the last part; never empty
  virtual Status OnPartEnd() = 0;
};

// Of a Content-Type header: kInvalidArgument where it is not multipart/form-data with a boundary of 1 to 70 bytes.
Result<std::string> MultipartBoundary(std::string_view content_type);

class MultipartReader {
 public:
  MultipartReader(std::string_view boundary, PartSink* sink);

  // kInvalidArgument: malformed. After an error nothing more may be fed.
  Status Feed(std::string_view bytes);
  // Of the whole body: kInvalidArgument where its last part has no end.
  Status Finish() const;

 private:
  enum class State { kBoundary, kBoundaryEnd, kHeaders, kData, kEpilogue };
  // One step; `more`: there may be another one before anything more is fed.
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
