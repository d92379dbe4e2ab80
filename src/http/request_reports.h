// Reports answered requests: a line of the access log, and spans for the trace exporter. Any thread.
#pragma once

#include <string>
#include <vector>

#include "http/answered.h"
#include "http/server_log.h"
#include "http/traces.h"

namespace tactus::http {

class RequestReports {
 public:
  // Either may be null. Both outlive this.
  RequestReports(ServerLog* access_log, TraceExporter* traces) : log_(access_log), traces_(traces) {}

  // `quiet`: a probe or a scrape, a line of the level debug and no span.
  void Report(const Answered& answered, bool quiet) const;
  bool any() const { return log_ != nullptr || traces_ != nullptr; }
  TraceExporter* traces() const { return traces_; }

 private:
  void ReportLine(const Answered& answered, bool quiet) const;
  void ReportSpans(const Answered& answered) const;

  ServerLog* const log_;
  TraceExporter* const traces_;
};

}  // namespace tactus::http
