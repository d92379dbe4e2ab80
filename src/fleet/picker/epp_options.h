// Options of `tactus epp` (tactus/option_fields.h makes them flags).
#pragma once

#include <cstdint>
#include <string>

#include "fleet/router/router_options.h"
#include "http/serving_options.h"
#include "tactus/option_fields.h"

namespace tactus::fleet {

struct EppOptions : http::ListenOptions {
  FleetOptions fleet;
  int64_t grpc_port = 9002, health_port = 9003, metrics_port = 9090;  // 0: any free port, printed at start
  std::string tls_cert, tls_key;
  std::string tls_ports = "all";
  std::string body_mode = "full-duplex";
  int64_t fallbacks = 0;
  int64_t max_requests_per_replica = 0;
  DurationText body_timeout{75'000'000'000};  // longer than a gateway's own timeout, which applies to its client

  EppOptions() { max_body_total.bytes = int64_t{1} << 30; }

  // Memory that requests may use: gRPC's messages and the bodies made of them, and the parsed values of the largest
  // body.
  int64_t RequestBytes() const {
    constexpr int64_t kValuesPerByte = 12;
    return 2 * max_body_total.bytes + kValuesPerByte * max_body.bytes;
  }

  template <class V>
  void VisitFields(V& v) {
    fleet.VisitFields(v);
    ListenOptions::VisitFields(v);
    v.Group("Endpoint picker");
    v.Field("grpc-port", grpc_port,
            {.min = 0, .max = 65535, .help = "port of the external processing service (gRPC); 0: any free one"});
    v.Field("health-port", health_port,
            {.min = 0, .max = 65535, .help = "port of the gRPC health service; 0: any free one"});
    v.Field("metrics-port", metrics_port,
            {.min = 0, .max = 65535, .help = "port of /metrics, /health and /ready (HTTP); 0: any free one"});
    v.Field(
        "tls-cert", tls_cert,
        {.help = "PEM file with the certificate of the ports, followed by its chain; read again at SIGHUP; default: "
                 "no TLS"});
    v.Field("tls-key", tls_key, {.help = "PEM file with its private key"});
    v.Field("tls-ports", tls_ports,
            {.choices = "all|grpc-and-metrics|grpc",
             .help = "ports that use TLS if there is a certificate; Kubernetes' gRPC probes need a health port "
                     "without it"});
    v.Field("body-mode", body_mode,
            {.choices = "full-duplex|streamed|buffered|none",
             .help = "mode of bodies if the data plane does not state it (Envoy does)"});
    v.Field("fallbacks", fallbacks,
            {.unit = "endpoints",
             .min = 0,
             .max = 16,
             .help = "endpoints named after the chosen one, for data planes that try them in order; Envoy's "
                     "ORIGINAL_DST clusters accept only one"});
    v.Field("max-requests-per-replica", max_requests_per_replica,
            {.unit = "requests",
             .min = 0,
             .max = 1 << 20,
             .help = "limit on requests in flight per ready replica; further ones get 429; 0: no limit"});
    v.Field("body-timeout", body_timeout,
            {.unit = "duration",
             .help = "longest time from a stream's beginning to the end of its request's body, if the picker waits for "
                     "it; then 408, or the stream's end if nothing has arrived; 0: no limit"});
  }
};

}  // namespace tactus::fleet
