#include "http/traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "base/json_text.h"
#include "base/printable.h"
#include "base/system_random.h"
#include "base/thread_role.h"
#include "base/unix_time.h"
#include "tactus/version.h"

namespace tactus::http {
namespace {

constexpr DurationNs kBatchNs = kSecond;  // the longest that a span waits for others
constexpr DurationNs kSendNs = 10 * kSecond, kLastTryNs = 2 * kSecond;
constexpr int kMostTries = 3;
constexpr const char* kPath = "/v1/traces";

// A number of `digits` small hexadecimal digits.
std::optional<uint64_t> Hex(std::string_view digits) {
  uint64_t number = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    number = number << 4 | static_cast<uint64_t>(digit);
  }
  return number;
}

// Version 00, or a later one that begins with its fields. An id of zeros alone is invalid.
std::optional<TraceContext> ParseTraceParent(std::string_view text) {
  constexpr size_t kSize = 55;
  if (text.size() < kSize || text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  const auto version = Hex(text.substr(0, 2)), high = Hex(text.substr(3, 16)), low = Hex(text.substr(19, 16)),
             span = Hex(text.substr(36, 16)), flags = Hex(text.substr(53, 2));
  if (!version || !high || !low || !span || !flags || *version == 0xff || *span == 0) return std::nullopt;
  if ((*high | *low) == 0 || (*version == 0 && text.size() != kSize)) return std::nullopt;
  if (text.size() > kSize && text[kSize] != '-') return std::nullopt;
  TraceContext context;
  context.trace = {.low = *low, .high = *high};
  context.parent = *span;
  context.sampled = (*flags & 1) != 0;
  return context;
}

Hash128 RandomIds() {
  const auto bits = SystemRandom();
  return bits.ok() ? *bits : Hash128{1, 1};
}

std::string TraceText(const TraceContext& context) {
  return fmt::format("{:016x}{:016x}", context.trace.high, context.trace.low);
}

void AppendAttribute(std::string* out, const std::string& key,
                     const std::variant<std::string, int64_t, double, bool>& value) {
  *out += "{\"key\":";
  json_text::AppendJsonString(out, key);
  *out += ",\"value\":{";
  if (const auto* text = std::get_if<std::string>(&value)) {
    *out += "\"stringValue\":";
    json_text::AppendJsonString(out, *text);
  } else if (const auto* whole = std::get_if<int64_t>(&value)) {
    *out += fmt::format("\"intValue\":\"{}\"", *whole);  // 64 bits are text in the JSON of protocol buffers
  } else if (const auto* real = std::get_if<double>(&value)) {
    *out += fmt::format("\"doubleValue\":{}", *real);
  } else {
    *out += fmt::format("\"boolValue\":{}", std::get<bool>(value));
  }
  *out += "}}";
}

}  // namespace

TraceContext BeginTrace(const HttpRequest& request) {
  const Hash128 random = RandomIds();
  const std::string* given = request.Find("traceparent");
  std::optional<TraceContext> context = given == nullptr ? std::nullopt : ParseTraceParent(Trimmed(*given));
  if (!context) context = TraceContext{.trace = random};
  context->span = RandomIds().low | 1;
  return *context;
}

TraceContext ChildOf(const TraceContext& parent) {
  return {.trace = parent.trace, .span = RandomIds().low | 1, .parent = parent.span, .sampled = parent.sampled};
}

std::string TraceParentText(const TraceContext& context) {
  return fmt::format("00-{}-{:016x}-{:02x}", TraceText(context), context.span, context.sampled ? 1 : 0);
}

namespace {

Result<Url> EndpointUrl(const std::string& endpoint) {
  auto url = ParseUrl(endpoint);
  if (!url.ok()) {
    return InvalidArgument(
        fmt::format("--otlp-traces-endpoint: {}, such as http://127.0.0.1:4318", url.status().message()),
        "otlp-traces-endpoint");
  }
  if (url->path == "/") url->path = kPath;
  return url;
}

}  // namespace

Status TraceExporter::Check(const std::string& endpoint) {
  return EndpointUrl(endpoint).status();
}

Result<std::unique_ptr<TraceExporter>> TraceExporter::Start(const std::string& endpoint, const std::string& service,
                                                            Clock& clock) {
  TACTUS_ASSIGN_OR_RETURN(Url url, EndpointUrl(endpoint));
  const char* named = std::getenv("OTEL_SERVICE_NAME");
  std::unique_ptr<TraceExporter> exporter(
      new TraceExporter(std::move(url), named != nullptr && *named != '\0' ? named : service, clock));
  exporter->thread_ = std::thread([raw = exporter.get()] { raw->Run(); });
  return exporter;
}

TraceExporter::TraceExporter(Url url, std::string service, Clock& clock)
    : url_(std::move(url)), service_(std::move(service)), clock_(clock) {}

TraceExporter::~TraceExporter() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TraceExporter::Add(std::vector<Span> spans) {
  std::lock_guard lock(mutex_);
  if (queue_.size() + spans.size() > kMostQueued) {
    dropped_.fetch_add(static_cast<int64_t>(spans.size()));
    return;
  }
  std::move(spans.begin(), spans.end(), std::back_inserter(queue_));
  if (queue_.size() >= kMostInBatch) changed_.notify_all();
}

void TraceExporter::Run() {
  SetThreadRole(ThreadRole::kService, "tactus-traces");
  std::string body;       // of a batch that was not accepted yet
  size_t body_spans = 0;  // in it
  int tries = 0;
  const auto ending = [this] {
    std::lock_guard lock(mutex_);
    return ending_;
  };
  for (bool last = false; !last;) {
    std::vector<Span> batch;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::nanoseconds(kBatchNs),
                        [this, &body] { return ending_ || (body.empty() && queue_.size() >= kMostInBatch); });
      if (body.empty()) {
        const auto end = queue_.begin() + static_cast<int64_t>(std::min(queue_.size(), kMostInBatch));
        std::move(queue_.begin(), end, std::back_inserter(batch));
        queue_.erase(queue_.begin(), end);
      }
      last = ending_ && queue_.empty();
    }
    try {
      if (!batch.empty()) {
        body = Text(batch);
        body_spans = batch.size();
        tries = 0;
      }
      if (body.empty()) continue;
      if (Send(body, body_spans, last)) {
        body.clear();
      } else if (++tries == kMostTries || ending()) {
        dropped_.fetch_add(static_cast<int64_t>(body_spans));
        body.clear();
        if (ending()) break;  // the rest would be lost as well, each batch after its own time-out
      }
    } catch (const std::exception&) {  // no memory
      dropped_.fetch_add(static_cast<int64_t>(body.empty() ? batch.size() : body_spans));
      body.clear();
    }
  }
}

bool TraceExporter::Send(const std::string& body, size_t spans, bool last) {
  ClientRequest request;
  request.path = url_.path;
  request.headers.emplace_back("Content-Type", "application/json");
  request.body = body;
  const auto answer = Fetch(url_, std::move(request), last ? kLastTryNs : kSendNs, clock_);
  const int status = answer.ok() ? answer->status : 0;
  if (status / 100 == 2) {
    sent_.fetch_add(static_cast<int64_t>(spans));
    return true;
  }
  const std::string why = answer.ok() ? fmt::format("it answers with status {}", status) : answer.status().message();
  std::lock_guard lock(mutex_);
  if (why != warned_) warning_ = warned_ = why;
  // The protocol's list of statuses after which the same batch may be accepted later.
  if (status == 0 || status == 429 || status == 502 || status == 503 || status == 504) return false;
  refused_.fetch_add(static_cast<int64_t>(spans));
  return true;
}

std::string TraceExporter::TakeWarning() {
  std::lock_guard lock(mutex_);
  if (warning_.empty()) return {};
  return fmt::format("traces are not accepted by --otlp-traces-endpoint: {}", Printable(std::exchange(warning_, {})));
}

std::string TraceExporter::Text(const std::vector<Span>& spans) const {
  const TimeNs to_unix_ns = UnixNs() - clock_.NowNs();
  std::string text = "{\"resourceSpans\":[{\"resource\":{\"attributes\":[";
  AppendAttribute(&text, "service.name", service_);
  text += ',';
  AppendAttribute(&text, "service.version", std::string(Version()));
  text += "]},\"scopeSpans\":[{\"scope\":{\"name\":\"tactus\"},\"spans\":[";
  for (size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    text += fmt::format("{}{{\"traceId\":\"{}\",\"spanId\":\"{:016x}\",", i == 0 ? "" : ",", TraceText(span.context),
                        span.context.span);
    if (span.context.parent != 0) text += fmt::format("\"parentSpanId\":\"{:016x}\",", span.context.parent);
    text += "\"name\":";
    json_text::AppendJsonString(&text, span.name);
    text += fmt::format(",\"kind\":{},\"startTimeUnixNano\":\"{}\",\"endTimeUnixNano\":\"{}\",\"attributes\":[",
                        static_cast<int>(span.kind), span.start_ns + to_unix_ns, span.end_ns + to_unix_ns);
    for (size_t a = 0; a < span.attributes.size(); ++a) {
      if (a > 0) text += ',';
      AppendAttribute(&text, span.attributes[a].first, span.attributes[a].second);
    }
    text += "],\"status\":{";
    if (!span.error.empty()) {
      text += "\"code\":2,\"message\":";
      json_text::AppendJsonString(&text, span.error);
    }
    text += "}}";
  }
  return text + "]}]}]}";
}

void TraceExporter::AppendMetrics(results::PrometheusText* text) const {
  text->Family(
      "tactus_trace_spans_total", results::PrometheusText::Type::kCounter,
      "Spans for --otlp-traces-endpoint: accepted by it, refused by it, or dropped because it did not answer in "
      "time.");
  for (const auto& [result, count] :
       {std::pair("sent", sent_.load()), std::pair("refused", refused_.load()), std::pair("dropped", dropped_.load())})
    text->Sample(static_cast<double>(count), {{"result", result}});
}

}  // namespace tactus::http
