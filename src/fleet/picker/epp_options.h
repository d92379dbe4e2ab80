// Options of `tactus epp` (tactus/option_fields.h says how they become flags).
#pragma once

#include <cstdint>
#include <string>

#include "base/body_limits.h"
#include "fleet/router/router_options.h"
#include "tactus/option_fields.h"

namespace tactus::fleet {

struct EppOptions {
  FleetOptions fleet;
  std::string host = "127.0.0.1";
  int64_t grpc_port = 9002, health_port = 9003, metrics_port = 9090;  // 0: any free one, printed at start
  std::string tls_cert, tls_key;
  std::string body_mode = "full-duplex";
  int64_t fallbacks = 0;
  int64_t max_requests_per_replica = 0;
  BytesText max_body{int64_t{16} << 20};
  BytesText max_body_total{int64_t{1} << 30};
  DurationText body_timeout{75'000'000'000};  // more than a gateway's own, which knows its client better
  DurationText shutdown_timeout{30'000'000'000};

  BodyLimits Bodies() const { return {max_body.bytes, max_body_total.bytes}; }
  // What requests may take: gRPC's messages and the bodies made of them, and the values of the largest.
  int64_t RequestBytes() const {
    constexpr int64_t kValuesPerByte = 12;
    return 2 * max_body_total.bytes + kValuesPerByte * max_body.bytes;
  }

  template <class V>
  void VisitFields(V& v) {
    fleet.VisitFields(v);
    v.Group("Endpoint picker");
    v.Field("host", host, {.help = "address to listen on, with all three ports"});
    v.Field("grpc-port", grpc_port,
            {.min = 0, .max = 65535, .help = "port of the external processing service (gRPC); 0: any free one"});
    v.Field("health-port", health_port,
            {.min = 0, .max = 65535, .help = "port of the gRPC health service; 0: any free one"});
    v.Field("metrics-port", metrics_port,
            {.min = 0, .max = 65535, .help = "port of /metrics, /health and /ready (HTTP); 0: any free one"});
    v.Field("tls-cert", tls_cert,
            {.help = "PEM file with the certificate of --grpc-port, its chain behind it; default: no TLS"});
    v.Field("tls-key", tls_key, {.help = "PEM file with its private key"});
    v.Field("body-mode", body_mode,
            {.choices = "full-duplex|streamed|buffered|none",
             .help = "how bodies come where the data plane does not say so (Envoy does)"});
    v.Field("fallbacks", fallbacks,
            {.unit = "endpoints",
             .min = 0,
             .max = 16,
             .help = "endpoints named behind the chosen one, for data planes that try them in order; Envoy's "
                     "ORIGINAL_DST clusters take one only"});
    v.Field("max-requests-per-replica", max_requests_per_replica,
            {.unit = "requests",
             .min = 0,
             .max = 1 << 20,
             .help = "most requests in flight for each ready replica; more get 429; 0: any number"});
    v.Field("max-body", max_body, {.unit = "bytes", .help = "largest request body; a larger one gets 413"});
    v.Field("max-body-total", max_body_total,
            {.unit = "bytes",
             .help = "all bodies that are held until they are whole, with headers that are being read; more get 503"});
    v.Field("body-timeout", body_timeout,
            {.unit = "duration",
             .help = "longest time from a stream's beginning to the end of its request's body, where the picker waits "
                     "for that; then 408, or the stream's end where nothing has come; 0: any time"});
    v.Field("shutdown-timeout", shutdown_timeout,
            {.unit = "duration", .help = "how long streams may finish after SIGTERM"});
  }
};

}  // namespace tactus::fleet
