// The counts of a server (ServerStats) as Prometheus text.
#pragma once

#include "http/server.h"
#include "results/obs/prometheus_text.h"

namespace tactus::http {

void AppendServerMetrics(const ServerStats& stats, results::PrometheusText* text);

}  // namespace tactus::http
