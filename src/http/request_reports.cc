#include "http/request_reports.h"

#include <fmt/format.h>

#include <utility>

#include "base/json_text.h"
#include "base/one_line.h"

namespace tactus::http {
namespace {

constexpr size_t kMostPathBytes = 200;
constexpr int kClientGone = 499;  // a status of logs alone

double Ms(DurationNs ns) {
  return static_cast<double>(ns) * 1e-6;
}

// The members of a line, in both formats. Names and values of the text have no spaces, so that tools can cut it.
class Fields {
 public:
  void Text(const char* name, std::string_view value) {
    if (value.empty()) return;
    Begin(name);
    json_text::AppendJsonString(&json_, value);
    std::string plain = OneLine(value);
    for (char& c : plain) {
      if (c == ' ') c = '_';
    }
    text_ += fmt::format(" {}={}", name, plain);
  }
  void Number(const char* name, int64_t value) {
    if (value < 0) return;
    Begin(name);
    json_ += fmt::format("{}", value);
    text_ += fmt::format(" {}={}", name, value);
  }
  void Time(const char* name, DurationNs ns) {
    if (ns < 0) return;
    Begin(name);
    json_ += fmt::format("{:.3f}", Ms(ns));
    text_ += fmt::format(" {}={:.3f}", name, Ms(ns));
  }
  void Truth(const char* name, bool value) {
    Begin(name);
    json_ += value ? "true" : "false";
    text_ += fmt::format(" {}={}", name, value);
  }
  const std::string& json() const { return json_; }
  const std::string& text() const { return text_; }

 private:
  void Begin(const char* name) { json_ += fmt::format("{}\"{}\":", json_.empty() ? "" : ",", name); }
  std::string json_, text_;
};

}  // namespace

void RequestReports::Report(const Answered& answered, bool quiet) const {
  if (log_ != nullptr) ReportLine(answered, quiet);
  if (traces_ != nullptr && !quiet && !answered.request.method.empty()) ReportSpans(answered);
}

void RequestReports::ReportLine(const Answered& a, bool quiet) const {
  const LogLevel level = a.status == 500 ? LogLevel::kError : quiet ? LogLevel::kDebug : LogLevel::kInfo;
  if (!log_->shows(level)) return;
  static const RequestFacts kNone;
  const RequestFacts& facts = a.facts != nullptr ? *a.facts : kNone;
  Fields fields;
  fields.Text("event", "request");
  fields.Text("peer", a.request.peer);
  fields.Text("client", facts.client);
  fields.Text("method", a.request.method.empty() ? "?" : OneLine(a.request.method, 20));
  fields.Text("path", a.request.path.empty() ? "?" : OneLine(a.request.path, kMostPathBytes));
  fields.Number("status", a.complete ? a.status : kClientGone);
  fields.Text("id", a.request_id);
  fields.Time("ms", a.end_ns - a.start_ns);
  if (a.first_byte_ns > 0) fields.Time("first_byte_ms", a.first_byte_ns - a.start_ns);
  fields.Number("request_bytes", a.request_bytes);
  fields.Number("answer_bytes", a.answer_bytes);
  if (a.facts != nullptr) {
    fields.Text("model", facts.model);
    fields.Truth("stream", facts.stream);
    fields.Number("prompt_tokens", facts.prompt_tokens);
    fields.Number("cached_tokens", facts.cached_tokens);
    fields.Number("output_tokens", facts.output_tokens);
    fields.Time("queue_ms", facts.queue_ns);
    fields.Time("ttft_ms", facts.ttft_ns);
    fields.Time("longest_gap_ms", facts.longest_gap_ns);
    fields.Number("preemptions", facts.preemptions);
    fields.Text("finish", facts.finish);
    fields.Text("cause", facts.cause);
    fields.Text("missed", facts.missed);
    if (!facts.replicas.empty()) {
      fields.Text("replica", facts.replicas.back().address);
      fields.Number("replicas_tried", static_cast<int64_t>(facts.replicas.size()));
    }
    if (facts.trace && (traces_ != nullptr || facts.trace->parent != 0))
      fields.Text("trace", TraceParentText(*facts.trace).substr(3, 32));
  }
  log_->WriteLater(level, std::string_view(fields.text()).substr(1), fields.json());
}

void RequestReports::ReportSpans(const Answered& a) const {
  static const RequestFacts kNone;
  const RequestFacts& facts = a.facts != nullptr ? *a.facts : kNone;
  const TraceContext context = facts.trace ? *facts.trace : BeginTrace(a.request);
  if (!context.sampled) return;
  std::vector<Span> spans;
  Span whole{.context = context,
             .name = fmt::format("{} {}", a.request.method, OneLine(a.request.path, kMostPathBytes)),
             .kind = SpanKind::kServer,
             .start_ns = a.start_ns,
             .end_ns = a.end_ns,
             .attributes = {},
             .error = {}};
  auto& attributes = whole.attributes;
  const auto text = [&](const char* key, const std::string& value) {
    if (!value.empty()) attributes.emplace_back(key, value);
  };
  const auto number = [&](const char* key, int64_t value) {
    if (value >= 0) attributes.emplace_back(key, value);
  };
  const auto seconds = [&](const char* key, DurationNs ns) {
    if (ns >= 0) attributes.emplace_back(key, static_cast<double>(ns) * 1e-9);
  };
  text("http.request.method", a.request.method);
  text("url.path", OneLine(a.request.path, kMostPathBytes));
  number("http.response.status_code", a.status);
  text("client.address", a.request.peer);
  // The names of vLLM's traces.
  text("gen_ai.request.id", std::string(a.request_id));
  text("gen_ai.response.model", facts.model);
  number("gen_ai.request.max_tokens", facts.max_tokens);
  number("gen_ai.request.n", facts.choices);
  number("gen_ai.usage.prompt_tokens", facts.prompt_tokens);
  number("gen_ai.usage.completion_tokens", facts.output_tokens);
  number("gen_ai.usage.cached_tokens", facts.cached_tokens);
  text("gen_ai.response.finish_reason", facts.finish);
  seconds("gen_ai.latency.time_in_queue", facts.queue_ns);
  seconds("gen_ai.latency.time_to_first_token", facts.ttft_ns);
  if (a.facts != nullptr) seconds("gen_ai.latency.e2e", a.end_ns - a.start_ns);
  number("tactus.preemptions", facts.preemptions);
  text("tactus.cause", facts.cause);
  text("tactus.missed", facts.missed);
  if (!a.complete)
    whole.error = "the client left before the end of the answer";
  else if (a.status >= 500)
    whole.error = fmt::format("status {}", a.status);
  spans.push_back(std::move(whole));
  const auto part = [&](const char* name, TimeNs from_ns, TimeNs to_ns) {
    spans.push_back({.context = ChildOf(context),
                     .name = name,
                     .start_ns = from_ns,
                     .end_ns = to_ns,
                     .attributes = {},
                     .error = {}});
  };
  if (facts.queue_ns >= 0) part("queue", a.start_ns, a.start_ns + facts.queue_ns);
  if (facts.queue_ns >= 0 && facts.ttft_ns >= facts.queue_ns) {
    part("prefill", a.start_ns + facts.queue_ns, a.start_ns + facts.ttft_ns);
    part("decode", a.start_ns + facts.ttft_ns, a.end_ns);
  }
  for (const TriedReplica& tried : facts.replicas) {
    Span span{.context = tried.trace,
              .name = "replica " + tried.address,
              .kind = SpanKind::kClient,
              .start_ns = tried.start_ns,
              .end_ns = tried.end_ns > 0 ? tried.end_ns : a.end_ns,
              .attributes = {{"server.address", tried.address}},
              .error = {}};
    if (tried.status > 0) span.attributes.emplace_back("http.response.status_code", int64_t{tried.status});
    if (tried.status == 0 || tried.status >= 500) span.error = tried.status == 0 ? "no answer" : "an error";
    spans.push_back(std::move(span));
  }
  traces_->Add(std::move(spans));
}

}  // namespace tactus::http
