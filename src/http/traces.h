// Exports spans of requests to a collector: OTLP over HTTP, in JSON (opentelemetry.io/docs/specs/otlp). A thread of the
// exporter sends them in batches; Add never waits.
//
// Thread rule: Add and counts on any thread. Invariant: at most kMostQueued spans wait; further ones are dropped and
// counted.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "http/answered.h"
#include "http/client.h"
#include "results/obs/prometheus_text.h"
#include "tactus/status.h"

namespace tactus::http {

enum class SpanKind { kInternal = 1, kServer = 2, kClient = 3 };

struct Span {
  TraceContext context;
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  TimeNs start_ns = 0, end_ns = 0;  // by the exporter's clock
  std::vector<std::pair<std::string, std::variant<std::string, int64_t, double, bool>>> attributes;
  std::string error;  // empty: none
};

class TraceExporter {
 public:
  static constexpr size_t kMostQueued = 8192, kMostInBatch = 512;

  // `endpoint`: a collector's URL; without a path, /v1/traces is added. kInvalidArgument: not a URL, or the system's
  // certificates cannot be read. `service`: the name in traces, unless OTEL_SERVICE_NAME is set.
  static Result<std::unique_ptr<TraceExporter>> Start(const std::string& endpoint, const std::string& service,
                                                      Clock& clock);
  static Status Check(const std::string& endpoint);
  ~TraceExporter();  // sends the rest, for kLastTryNs at most
  TraceExporter(const TraceExporter&) = delete;

  void Add(std::vector<Span> spans);
  void AppendMetrics(results::PrometheusText* text) const;
  // Why the last batch was not accepted, since the last call; empty: no news.
  std::string TakeWarning();

 private:
  TraceExporter(Url url, std::string service, Clock& clock);
  void Run();
  // False: the batch should be sent again later.
  bool Send(const std::string& body, size_t spans, bool last);
  std::string Text(const std::vector<Span>& spans) const;

  const Url url_;
  const std::string service_;
  Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Span> queue_;
  std::string warning_, warned_;
  bool ending_ = false;
  std::atomic<int64_t> sent_{0}, dropped_{0}, refused_{0};
  std::thread thread_;
};

}  // namespace tactus::http
