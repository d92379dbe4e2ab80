// What a server counts (ServerStats), for Prometheus.
#pragma once

#include "http/server.h"
#include "results/obs/prometheus_text.h"

namespace tactus::http {

void AppendServerMetrics(const ServerStats& stats, results::PrometheusText* text);

}  // namespace tactus::http
