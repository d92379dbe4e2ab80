// Any messages of a data plane, in any order and mode, with any bodies: every pick is ended once, all reserved memory
// is released, the headers are answered once, and in full duplex bodies are forwarded unchanged.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>

#include "fleet/picker/stream.h"

namespace {

using namespace tactus;
using namespace tactus::fleet;

void Require(bool condition) {
  if (!condition) std::abort();
}

class CountingFleet final : public EndpointSource {
 public:
  std::optional<Picked> Pick(const fleet::RouteRequest&, std::span<const std::string> subset,
                             std::span<const int32_t>) override {
    if (picks_ % 5 == 4 || (!subset.empty() && subset[0] != kAddress)) return ++picks_, std::nullopt;
    open_.insert(++picks_);
    return Picked{.pick = picks_, .url = "http://a:1", .address = kAddress};
  }
  void Ended(uint64_t pick, int32_t output_tokens) override { Require(open_.erase(pick) == 1 && output_tokens >= -1); }
  void Answered(int32_t, bool) override {}
  void AppendMetrics(results::PrometheusText*) const override {}
  std::vector<Endpoint> Endpoints() const override {
    return {{.url = "http://a:1", .address = kAddress, .ready = true}};
  }
  int64_t ready() const override { return 1; }
  bool idle() const { return open_.empty(); }

 private:
  static constexpr const char* kAddress = "a:1";
  std::set<uint64_t> open_;
  uint64_t picks_ = 0;
};

struct Input {
  const uint8_t* data;
  size_t size;
  uint8_t Byte() {
    if (size == 0) return 0;
    --size;
    return *data++;
  }
  std::string Bytes() {
    const size_t taken = std::min<size_t>(size, size_t{Byte()} * (1 + Byte() % 64));
    const std::string bytes(reinterpret_cast<const char*>(data), std::min(taken, size));
    data += bytes.size();
    size -= bytes.size();
    return bytes;
  }
};

// The state that a well-behaved data plane expects.
struct Seen {
  int headers = 0, request_headers_sent = 0;
  std::string sent, passed_on;
  bool ended = false;

  void Add(const Stream::Replies& replies, BodyMode mode) {
    for (const Reply& reply : replies) {
      if (reply.kind == Reply::Kind::kRefusal) Require(replies.size() == 1 && reply.status >= 400);
      headers += reply.kind == Reply::Kind::kRequestHeaders;
      if (reply.kind != Reply::Kind::kRequestBody || mode != BodyMode::kFullDuplex) continue;
      Require(!ended && reply.streamed);
      passed_on += reply.body;
      ended = reply.end_of_stream;
    }
    Require(headers <= request_headers_sent);
    if (ended) Require(passed_on == sent);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in{data, size};
  CountingFleet fleet;
  ManualClock clock;
  constexpr int64_t kRoom = 20'000;
  Picker picker(fleet, {.max_body_bytes = 10'000, .max_body_total_bytes = kRoom, .fallbacks = 1}, clock);
  {
    const auto mode = static_cast<BodyMode>(in.Byte() % 5);
    Stream stream(picker, mode, static_cast<BodyMode>(in.Byte() % 5));
    Seen seen;
    bool body_over = false;
    while (in.size > 0 && !stream.refused()) {
      const uint8_t op = in.Byte();
      const bool end = (op & 8) != 0;
      StreamMetadata metadata;
      if ((op & 16) != 0) metadata.subset.emplace({in.Bytes()});
      switch (op % 8) {
        case 0:
        case 1:
          ++seen.request_headers_sent;
          seen.Add(stream.RequestHeaders({{"content-length", in.Bytes()}}, end, metadata), mode);
          body_over = body_over || end;
          break;
        case 2:
        case 3:
        case 4: {
          const std::string piece = in.Bytes();
          if (!body_over) seen.sent += piece;
          body_over = body_over || end;
          seen.Add(stream.RequestBody(piece, end, metadata), mode);
          break;
        }
        case 5:
          seen.Add(stream.RequestTrailers(metadata), mode);
          body_over = true;
          break;
        case 6:
          metadata.served = in.Bytes();
          (void)stream.ResponseHeaders({{":status", end ? "200" : in.Bytes()}, {"content-type", "text/event-stream"}},
                                       (op & 32) != 0, metadata);
          break;
        default:
          (void)stream.ResponseBody(in.Bytes(), end);
      }
    }
  }
  Require(fleet.idle() && picker.streams() == 0 && picker.outstanding() == 0 && picker.TakeRoom(kRoom));
  return 0;
}
