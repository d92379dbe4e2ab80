// One HTTP request and its response, told piece by piece by a data plane; every piece gets the replies that its mode
// wants. Knows no gRPC.
//
// The request is given a replica once: where the body is streamed in full duplex or held by the data plane, when it is
// whole, else by its headers. Replies of a direction come in the order headers, body, trailers, and the headers' once:
// in full duplex all of them after the body's end.
//
// Thread rule: one call at a time. A ticket that was taken is given back once: at the response's end, or when the
// stream goes. Only a response whose end was seen is completed. A stream that goes before is aborted, whether it was
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

// How a body comes. kBufferedPartial: whole up to a limit of the data plane's, so that it may be cut.
enum class BodyMode { kNone, kStreamed, kBuffered, kBufferedPartial, kFullDuplex };

// What the data plane says beside the request.
struct StreamMetadata {
  std::optional<std::vector<std::string>> subset;  // that may be picked; nothing: any
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
  std::string destination;  // of the reply that gives the request its replica, else empty
  bool streamed = false;    // of a body in full duplex: the piece, to be passed on
  std::string body = {};
  bool end_of_stream = false;
  int status = 0;  // kRefusal; its body is the error as JSON
};

class Stream {
 public:
  // The modes hold until SetModes.
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
  // All replies have been sent on: what was held for them is let go.
  void Passed();
  // Whether the request has no replica yet: nothing of it has come, or its body has not come whole.
  bool waits_for_request() const { return !chosen_ && !refused_; }
  // Whether anything of the request has come.
  bool seen() const { return seen_; }
  // The answer to one whose body takes too long.
  Replies BodyIsLate();
  // Room for the bytes of a message, until Passed; false: there is none, and `replies` has the refusal.
  bool TakeMessage(int64_t bytes, Replies* replies);
  // The request got an answer of the picker's own: nothing more is to be read.
  bool refused() const { return refused_; }

 private:
  // Gives the request a replica if it has none; false: it is refused, and `replies` has that and nothing else.
  bool Choose(RequestView view, Replies* replies);
  void Refuse(const Refusal& refusal, Replies* replies);
  void RouteWhole(bool by_trailers, Replies* replies);
  void HearAnswer(std::string_view bytes);
  // -1: it cannot be told.
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
  std::string body_;                              // of the request, until it is whole
  int64_t room_ = 0, message_room_ = 0;           // taken for it, and for the message that is being answered
  enum class Form { kUnknown, kWhole, kEvents };  // kUnknown: compressed, or neither of the others
  Form form_ = Form::kUnknown;                    // of the response
  AnswerScan answer_;
  std::string answer_end_;      // of a whole one: its last bytes, where its usage is
  int status_ = 0;              // of the response
  bool seen_ = false;           // the request's headers, or what follows them
  bool headers_held_ = false;   // the request's headers wait for their reply
  bool request_ended_ = false;  // its body or trailers have come to their end
  bool chosen_ = false;         // or refused: it is asked once
  bool has_ticket_ = false;
  bool refused_ = false;
};

}  // namespace tactus::fleet
