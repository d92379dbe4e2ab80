#include "http/server_metrics.h"

#include <fmt/format.h>

namespace tactus::http {

void AppendServerMetrics(const ServerStats& stats, results::PrometheusText* text) {
  const auto value = [](auto count) { return static_cast<double>(count); };
  text->Gauge("tactus_http_connections", "Open HTTP connections.", value(stats.connections));
  text->Counter("tactus_http_connections_total", "HTTP connections accepted.", value(stats.connections_total));
  text->Counter("tactus_http_connections_refused_total",
                "Connections beyond --max-connections or --max-connections-per-client.",
                value(stats.connections_refused));
  text->Gauge("tactus_http_exchanges", "HTTP requests being answered.", value(stats.exchanges));
  text->Counter("tactus_http_client_gone_total", "Requests whose client left before the end.",
                value(stats.client_gone));
  if (stats.tls) {
    text->Gauge("tactus_tls_not_after_seconds", "End of the validity of the listener's certificate, Unix time.",
                value(stats.tls_not_after_s));
    text->Counter("tactus_tls_failures_total", "TLS handshakes that failed or did not end in time.",
                  value(stats.tls_failures));
  }
  text->Gauge("tactus_http_body_bytes", "Bytes of request bodies received and not yet parsed.",
              value(stats.body_bytes));
  text->Gauge("tactus_http_body_bytes_limit",
              "Limit of tactus_http_body_bytes: --max-body-total, or less on a small machine.",
              value(stats.body_bytes_limit));
  text->Counter("tactus_http_bodies_refused_total", "Request bodies refused because --max-body-total was reached.",
                value(stats.bodies_refused));
  text->Family("tactus_http_responses_total", results::PrometheusText::Type::kCounter, "HTTP answers by status.");
  for (const auto& [status, count] : stats.responses) text->Sample(value(count), {{"code", fmt::format("{}", status)}});
}

}  // namespace tactus::http
