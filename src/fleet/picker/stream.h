// One HTTP request and its response, received in pieces from a data plane; every piece gets the replies that its mode
// requires. Independent of gRPC.
//
// The replica is chosen once: if the body is streamed in full duplex or buffered by the data plane, when it is
// complete; otherwise by the headers. Replies of a direction come in the order headers, body, trailers, with one reply
// to the headers: in full duplex all of them after the body's end.
//
// Thread rule: one call at a time. A pick is returned once: at the response's end, or in the destructor. Only a
// response whose end was received counts as completed. A stream that ends earlier counts as aborted, whether it was
// cancelled, lost or half-closed: Envoy half-closes a stream and resets it, however its request has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fleet/picker/picker.h"
#include "fleet/router/answer_scan.h"
#include "fleet/router/request_view.h"
#include "http/message.h"

namespace tactus::fleet {

// How a body arrives. kBufferedPartial: complete up to a limit of the data plane, so that it may be cut.
enum class BodyMode { kNone, kStreamed, kBuffered, kBufferedPartial, kFullDuplex };

// Metadata of the data plane besides the request.
struct StreamMetadata {
  std::optional<std::vector<std::string>> subset;  // that may be picked; not set: any
  std::string served;                              // with a response: the address that it came from
};

struct Reply {
  enum class Kind {
    kRequestHeaders,
    kRequestBody,
    kRequestTrailers,
    kResponseHeaders,
    kResponseBody,
    kResponseTrailers,
    kRefusal,
  };
  Kind kind = Kind::kRequestHeaders;
  std::string destination;  // of the reply that names the replica; otherwise empty
  bool streamed = false;    // for a body in full duplex: the piece to pass on
  std::string body = {};
  bool end_of_stream = false;
  int status = 0;  // kRefusal; its body is the error as JSON
};

class Stream {
 public:
  // The modes apply until SetModes.
  Stream(Picker& picker, BodyMode request_mode, BodyMode response_mode);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void SetModes(BodyMode request_mode, BodyMode response_mode);
  using Replies = std::vector<Reply>;
  Replies RequestHeaders(const http::Headers& headers, bool end, StreamMetadata metadata);
  Replies RequestBody(std::string piece, bool end, StreamMetadata metadata);
  Replies RequestTrailers(StreamMetadata metadata);
  Replies ResponseHeaders(const http::Headers& headers, bool end, const StreamMetadata& metadata);
  Replies ResponseBody(std::string piece, bool end);
  Replies ResponseTrailers();
  // All replies have been sent: frees the memory held for them.
  void Passed();
  // Whether the request has no replica yet: nothing of it has arrived, or its body is incomplete.
  bool waits_for_request() const { return !chosen_ && !refused_; }
  // Whether anything of the request has arrived.
  bool seen() const { return seen_; }
  // The response to a request whose body takes too long.
  Replies BodyIsLate();
  // Reserves room for the bytes of a message, until Passed; false: no room, and `replies` has the refusal.
  bool TakeMessage(int64_t bytes, Replies* replies);
  // The picker has responded itself: nothing more is to be read.
  bool refused() const { return refused_; }

 private:
  // Chooses a replica if there is none yet; false: refused, and `replies` has only the refusal.
  bool Choose(RequestView view, Replies* replies);
  void Refuse(const Refusal& refusal, Replies* replies);
  void RouteWhole(bool by_trailers, Replies* replies);
  void HearAnswer(std::string_view bytes);
  // -1: not known.
  int32_t OutputTokens();
  void EndResponse();
  Picker::Outcome OutcomeWithoutEnd() const;
  void DropBody();
  std::string TakeDestination();

  Picker& picker_;
  BodyMode request_mode_, response_mode_;
  StreamMetadata metadata_;
  RequestView view_;
  Choice choice_;
  std::string destination_;
  std::string body_;                              // of the request, until it is complete
  int64_t room_ = 0, message_room_ = 0;           // reserved for it, and for the message being answered
  enum class Form { kUnknown, kWhole, kEvents };  // kUnknown: compressed, or another type
  Form form_ = Form::kUnknown;                    // of the response
  AnswerScan answer_;
  std::string answer_end_;      // the last bytes of a whole one, which have its usage
  int status_ = 0;              // of the response
  bool seen_ = false;           // the request's headers, or anything after them
  bool headers_held_ = false;   // the request's headers wait for their reply
  bool request_ended_ = false;  // its body or trailers have ended
  bool chosen_ = false;         // or refused: chosen only once
  bool has_pick_ = false;
  bool refused_ = false;
};

}  // namespace tactus::fleet
