#include "fleet/picker/ext_proc_service.h"

#include <grpc/support/time.h>
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <utility>

#include "external_processor.grpc.pb.h"

namespace tactus::fleet {
namespace {

namespace proto = envoy::service::ext_proc::v3;

constexpr char kDestination[] = "x-gateway-destination-endpoint";
constexpr char kNamespace[] = "envoy.lb";
constexpr char kSubsetNamespace[] = "envoy.lb.subset_hint";
constexpr char kSubset[] = "x-gateway-destination-endpoint-subset";
constexpr char kServed[] = "x-gateway-destination-endpoint-served";

// Splits at commas: accepts "a, b" and "a".
void AppendEntries(std::string_view text, std::vector<std::string>* entries) {
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) entries->emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
}

const google::protobuf::Value* FindValue(const proto::Metadata& metadata, const char* name_space, const char* key) {
  const auto found = metadata.filter_metadata().find(name_space);
  if (found == metadata.filter_metadata().end()) return nullptr;
  const auto value = found->second.fields().find(key);
  return value == found->second.fields().end() ? nullptr : &value->second;
}

StreamMetadata MetadataOf(const proto::ProcessingRequest& message) {
  StreamMetadata metadata;
  if (!message.has_metadata_context()) return metadata;
  if (const auto* subset = FindValue(message.metadata_context(), kSubsetNamespace, kSubset)) {
    metadata.subset.emplace();  // present without an address: allows no endpoint
    if (subset->kind_case() == google::protobuf::Value::kStringValue) {
      AppendEntries(subset->string_value(), &*metadata.subset);
    }
    for (const auto& entry : subset->list_value().values()) AppendEntries(entry.string_value(), &*metadata.subset);
  }
  if (const auto* served = FindValue(message.metadata_context(), kNamespace, kServed)) {
    metadata.served = served->string_value();
  }
  return metadata;
}

http::Headers HeadersOf(const proto::HeaderMap& map) {
  http::Headers headers;
  headers.reserve(static_cast<size_t>(map.headers_size()));
  for (const auto& header : map.headers()) {
    headers.emplace_back(header.key(), header.raw_value().empty() ? header.value() : header.raw_value());
  }
  return headers;
}

BodyMode ModeOf(proto::BodySendMode mode) {
  switch (mode) {
    case proto::STREAMED:
      return BodyMode::kStreamed;
    case proto::BUFFERED:
      return BodyMode::kBuffered;
    case proto::BUFFERED_PARTIAL:
      return BodyMode::kBufferedPartial;
    case proto::FULL_DUPLEX_STREAMED:
      return BodyMode::kFullDuplex;
    default:
      return BodyMode::kNone;
  }
}

void SetHeader(const char* key, const std::string& value, proto::HeaderMutation* mutation) {
  proto::HeaderValueOption* option = mutation->add_set_headers();
  option->mutable_header()->set_key(key);
  option->mutable_header()->set_raw_value(value);
  option->set_append_action(proto::HeaderValueOption::OVERWRITE_IF_EXISTS_OR_ADD);
}

// Header and metadata have the same value: data planes read one or the other.
void SetDestination(const std::string& destination, proto::CommonResponse* common, proto::ProcessingResponse* message) {
  if (destination.empty()) return;
  if (common != nullptr) {
    common->set_clear_route_cache(true);
    SetHeader(kDestination, destination, common->mutable_header_mutation());
  }
  google::protobuf::Value& lb = (*message->mutable_dynamic_metadata()->mutable_fields())[kNamespace];
  (*lb.mutable_struct_value()->mutable_fields())[kDestination].set_string_value(destination);
}

void SetStreamed(Reply reply, proto::CommonResponse* common) {
  if (!reply.streamed) return;
  proto::StreamedBodyResponse* streamed = common->mutable_body_mutation()->mutable_streamed_response();
  streamed->set_body(std::move(reply.body));
  streamed->set_end_of_stream(reply.end_of_stream);
}

void SetRefusal(Reply reply, proto::ImmediateResponse* refusal) {
  refusal->mutable_status()->set_code(reply.status);
  SetHeader("content-type", "application/json", refusal->mutable_headers());
  if (reply.status != 413) SetHeader("retry-after", "1", refusal->mutable_headers());
  refusal->set_body(std::move(reply.body));
  refusal->set_details("tactus_epp");
}

proto::ProcessingResponse MessageOf(Reply reply) {
  proto::ProcessingResponse message;
  switch (reply.kind) {
    case Reply::Kind::kRequestHeaders:
      SetDestination(reply.destination, message.mutable_request_headers()->mutable_response(), &message);
      break;
    case Reply::Kind::kRequestBody:
      SetDestination(reply.destination, message.mutable_request_body()->mutable_response(), &message);
      SetStreamed(std::move(reply), message.mutable_request_body()->mutable_response());
      break;
    case Reply::Kind::kRequestTrailers:
      message.mutable_request_trailers();
      SetDestination(reply.destination, nullptr, &message);
      break;
    case Reply::Kind::kResponseHeaders:
      message.mutable_response_headers()->mutable_response();
      break;
    case Reply::Kind::kResponseBody:
      SetStreamed(std::move(reply), message.mutable_response_body()->mutable_response());
      break;
    case Reply::Kind::kResponseTrailers:
      message.mutable_response_trailers();
      break;
    case Reply::Kind::kRefusal:
      SetRefusal(std::move(reply), message.mutable_immediate_response());
      break;
  }
  return message;
}

// Raw bytes, so that an invalid message is detected: parsed by gRPC it looks like the stream's end.
using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

grpc::ByteBuffer BytesOf(const proto::ProcessingResponse& message) {
  grpc::ByteBuffer bytes;
  bool own = false;
  // Serialize fails only for messages of 2 GiB, and pieces are small.
  (void)grpc::SerializationTraits<proto::ProcessingResponse>::Serialize(message, &bytes, &own);
  return bytes;
}

// State of a body's time limit. The timer and the read that waits for the next piece compete for the stream: the first
// to find it waiting gets it.
struct BodyLimit {
  enum State { kBusy, kWaiting, kOver };
  std::atomic<State> state{kBusy};
};

// One operation is in progress at any time, and its end starts the next; so no two callbacks run at once, and a client
// that disconnects appears as a failed operation. (Exception: the body's time limit ends the stream, and the read in
// progress is then ignored.)
class StreamReactor final : public Reactor {
 public:
  StreamReactor(Picker& picker, BodyMode assumed)
      : body_timeout_ns_(picker.options().body_timeout_ns), stream_(picker, assumed, assumed) {
    Read();
  }

  void OnReadDone(bool ok) override {
    if (limited_ && !Swap(BodyLimit::kWaiting, BodyLimit::kBusy)) return;
    if (!ok) return End();
    Guarded([this] { TakeMessage(); });
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    Guarded([this] { SendNext(); });
  }
  void OnDone() override { delete this; }

 private:
  void TakeMessage() {
    {
      const auto bytes = static_cast<int64_t>(request_.Length());
      proto::ProcessingRequest message;
      if (const grpc::Status parsed =
              grpc::SerializationTraits<proto::ProcessingRequest>::Deserialize(&request_, &message);
          !parsed.ok()) {
        return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                   "the message of " + std::to_string(bytes) +
                                       " bytes is not an envoy.service.ext_proc.v3.ProcessingRequest"));
      }
      request_.Clear();
      Hear(bytes, message);
    }
    SendNext();
  }

  // Half-closed, or disconnected. With status OK a data plane may forward the request without a replica from the
  // picker.
  void End() {
    if (!watched_ && stream_.seen() && stream_.waits_for_request()) {
      return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                 "the stream ended before the request's body; send end_of_stream or trailers"));
    }
    Finish(grpc::Status::OK);
  }

  bool Swap(BodyLimit::State from, BodyLimit::State to) { return limit_->state.compare_exchange_strong(from, to); }

  // An exception here, as when memory is short, ends this stream, not the process. It is thrown before an operation has
  // started.
  template <class Fn>
  void Guarded(Fn fn) {
    try {
      fn();
    } catch (const std::exception&) {
      Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no memory for this request"));
    }
  }

  void SendNext() {
    if (replies_.empty()) {
      stream_.Passed();
      if (stream_.refused()) return Finish(grpc::Status::OK);
      return Read();
    }
    response_ = BytesOf(MessageOf(std::move(replies_.front())));
    replies_.pop_front();
    StartWrite(&response_);
  }

  void Read() {
    const bool limits = body_timeout_ns_ > 0 && !watched_ && stream_.waits_for_request();
    if (limits && !limit_) {
      limit_ = std::make_shared<BodyLimit>();
      alarm_.Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(body_timeout_ns_, GPR_TIMESPAN)),
                 [this, limit = limit_](bool due) {
                   if (due && limit->state.exchange(BodyLimit::kOver) == BodyLimit::kWaiting)
                     Guarded([this] { EndLate(); });
                 });
    }
    if (!limits && limited_) alarm_.Cancel();
    limited_ = limits;
    if (limited_ && !Swap(BodyLimit::kBusy, BodyLimit::kWaiting)) return EndLate();
    StartRead(&request_);
  }

  // This object exists until Finish, which the end of a stream waits for.
  void EndLate() {
    Reply late = std::move(stream_.BodyIsLate().front());
    if (!stream_.seen())
      return Finish(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no request arrived within --body-timeout"));
    response_ = BytesOf(MessageOf(std::move(late)));
    StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
  }

  void Hear(int64_t bytes, proto::ProcessingRequest& message) {
    if (message.observability_mode()) {  // the data plane expects no replies
      watched_ = true;
      return;
    }
    if (message.has_protocol_config()) {
      stream_.SetModes(ModeOf(message.protocol_config().request_body_mode()),
                       ModeOf(message.protocol_config().response_body_mode()));
    }
    Stream::Replies replies;
    // The stream itself counts a body's bytes while it holds them.
    if (message.has_request_body() || stream_.TakeMessage(bytes, &replies)) replies = RepliesTo(message);
    for (Reply& reply : replies) replies_.push_back(std::move(reply));
  }

  Stream::Replies RepliesTo(proto::ProcessingRequest& message) {
    StreamMetadata metadata = MetadataOf(message);
    switch (message.request_case()) {
      case proto::ProcessingRequest::kRequestHeaders: {
        const auto& headers = message.request_headers();
        return stream_.RequestHeaders(HeadersOf(headers.headers()), headers.end_of_stream(), std::move(metadata));
      }
      case proto::ProcessingRequest::kRequestBody: {
        auto& body = *message.mutable_request_body();
        return stream_.RequestBody(std::move(*body.mutable_body()), body.end_of_stream(), std::move(metadata));
      }
      case proto::ProcessingRequest::kRequestTrailers:
        return stream_.RequestTrailers(std::move(metadata));
      case proto::ProcessingRequest::kResponseHeaders: {
        const auto& headers = message.response_headers();
        return stream_.ResponseHeaders(HeadersOf(headers.headers()), headers.end_of_stream(), metadata);
      }
      case proto::ProcessingRequest::kResponseBody: {
        auto& body = *message.mutable_response_body();
        return stream_.ResponseBody(std::move(*body.mutable_body()), body.end_of_stream());
      }
      case proto::ProcessingRequest::kResponseTrailers:
        return stream_.ResponseTrailers();
      case proto::ProcessingRequest::REQUEST_NOT_SET:
        break;
    }
    return {};  // an unknown message: no reply
  }

  const DurationNs body_timeout_ns_;
  Stream stream_;
  std::shared_ptr<BodyLimit> limit_;  // null: no body was waited for
  bool limited_ = false;              // whether the read in progress has the time limit
  bool watched_ = false;              // the data plane expects no replies
  grpc::Alarm alarm_;
  grpc::ByteBuffer request_, response_;
  std::deque<Reply> replies_;
};

class ExtProcService final
    : public proto::ExternalProcessor::WithRawCallbackMethod_Process<proto::ExternalProcessor::Service> {
 public:
  ExtProcService(Picker& picker, BodyMode assumed) : picker_(picker), assumed_(assumed) {}

  Reactor* Process(grpc::CallbackServerContext*) override { return new StreamReactor(picker_, assumed_); }

 private:
  Picker& picker_;
  const BodyMode assumed_;
};

}  // namespace

std::shared_ptr<grpc::Service> MakeExtProcService(Picker& picker, BodyMode assumed) {
  return std::make_shared<ExtProcService>(picker, assumed);
}

}  // namespace tactus::fleet
