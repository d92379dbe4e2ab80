// Options that several servers have (tactus/option_fields.h turns them into flags): ListenOptions of `tactus serve`,
// `tactus route` and `tactus epp`, ServingOptions of serve and route, whose clients speak HTTP.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/body_limits.h"
#include "http/server.h"
#include "http/server_log.h"
#include "http/serving_process.h"
#include "http/tls.h"
#include "tactus/option_fields.h"
#include "tactus/status.h"

namespace tactus::http {

// The client's side of TLS between the members of a fleet.
struct ReplicaTlsOptions {
  std::string replica_ca, replica_cert, replica_key, replica_tls_name;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Fleet");
    v.Field("replica-ca", replica_ca,
            {.help = "PEM file with the authorities that sign the certificates of replicas with https URLs; default: "
                     "those of the system"});
    v.Field("replica-cert", replica_cert,
            {.help = "PEM file with the certificate that is shown to replicas that ask for one (--tls-client-ca)"});
    v.Field("replica-key", replica_key, {.help = "PEM file with its private key"});
    v.Field("replica-tls-name", replica_tls_name,
            {.help = "name that the certificates of replicas must have; default: the host of each URL"});
  }
  // kInvalidArgument names the option.
  Result<std::shared_ptr<TlsContext>> Context() const;
};

struct ListenOptions {
  std::string host = "127.0.0.1";
  LogOptions log;
  bool verbose = false;
  BytesText max_body{int64_t{16} << 20};
  // Room for 16 of the largest bodies, or 1,000 of 256 KiB (prompts of 60,000 tokens).
  BytesText max_body_total{int64_t{256} << 20};
  DurationText shutdown_timeout{30'000'000'000};

  BodyLimits Bodies() const { return {max_body.bytes, max_body_total.bytes}; }

  template <class V>
  void VisitFields(V& v) {
    v.Group("Server");
    v.Field("host", host, {.help = "address to listen on"});
    v.Field("verbose", verbose, {.help = "print all details of the start on standard error; else at most ten lines"});
    v.Field("max-body", max_body, {.unit = "bytes", .help = "largest request body; a larger one gets 413"});
    v.Field("max-body-total", max_body_total,
            {.unit = "bytes", .help = "total size of the request bodies in memory; further ones get 503"});
    v.Field("shutdown-timeout", shutdown_timeout,
            {.unit = "duration", .help = "time for running requests to finish after SIGTERM"});
    log.VisitFields(v);
    v.Group("Server");
  }
};

struct ServingOptions : ListenOptions {
  int64_t port = 8000;  // 0: any free port, printed at start
  std::vector<std::string> api_key, allowed_origins, allowed_hosts;
  int64_t max_connections = 4096;
  int64_t max_connections_per_client = 0;  // 0: half of max_connections
  DurationText request_timeout{600'000'000'000};
  DurationText read_timeout{60'000'000'000}, write_timeout{30'000'000'000}, idle_timeout{75'000'000'000};
  std::string kv_secret_file;  // empty: no fleet
  std::string tls_cert, tls_key, tls_client_ca;
  bool access_log = false;
  std::string otlp_traces_endpoint;

  template <class V>
  void VisitFields(V& v) {
    v.Group("Server");
    v.Field("port", port, {.min = 0, .max = 65535, .help = "port to listen on; 0: any free port"});
    ListenOptions::VisitFields(v);
    v.Field("api-key", api_key,
            {.help = "key that clients must send as a bearer token; may be repeated; default: none is needed",
             .secret = true});
    v.Field("allowed-origins", allowed_origins,
            {.help = "web origin that browsers may call from, or *; may be repeated"});
    v.Field("allowed-hosts", allowed_hosts,
            {.help = "host name that clients may call this server by, or *; may be repeated; default: loopback names "
                     "when it listens there, else *"});
    v.Field("max-connections", max_connections,
            {.unit = "connections", .min = 1, .max = 1 << 20, .help = "most open connections; further ones get 503"});
    v.Field("max-connections-per-client", max_connections_per_client,
            {.unit = "connections",
             .min = 0,
             .max = 1 << 20,
             .help = "most connections of one client address; further ones get 503; 0: half of --max-connections"});
    v.Field("request-timeout", request_timeout,
            {.unit = "duration", .help = "longest time that a request may take; then it is cancelled"});
    v.Field("read-timeout", read_timeout,
            {.unit = "duration",
             .help = "longest time that a client may take to send a request's body; headers have at most 15 s"});
    v.Field("write-timeout", write_timeout,
            {.unit = "duration", .help = "a client that accepts no bytes for this time counts as gone"});
    v.Field("idle-timeout", idle_timeout,
            {.unit = "duration", .help = "time that a connection stays open between requests"});
    v.Field(
        "tls-cert", tls_cert,
        {.alias = "ssl-certfile",
         .help = "PEM file with the listener's certificate, followed by its chain; read again at SIGHUP; default: no "
                 "TLS"});
    v.Field("tls-key", tls_key, {.alias = "ssl-keyfile", .help = "PEM file with its private key"});
    v.Field("tls-client-ca", tls_client_ca,
            {.alias = "ssl-ca-certs",
             .help = "PEM file with authorities: every request but /health and /ready needs a client certificate that "
                     "one of them has signed; default: none is asked for"});
    v.Group("Log");
    v.Field("access-log", access_log,
            {.help = "log a line for each request, with its latencies and their cause, without texts"});
    v.Field(
        "otlp-traces-endpoint", otlp_traces_endpoint,
        {.help = "URL of an OpenTelemetry collector (OTLP over HTTP, such as http://127.0.0.1:4318) that gets a trace "
                 "of each request; default: no traces"});
    v.Group("Fleet");
    v.Field("kv-secret-file", kv_secret_file,
            {.help = "file with the secret that all replicas and routers of a fleet share, 16 bytes or more, which no "
                     "other user may read: enables comparing prefixes and moving sequences between replicas; "
                     "default: none"});
  }
};

// kInvalidArgument for a host, key, host name, limit or secret file that no server can use; the option is the param.
Status CheckServingOptions(const ServingOptions& options);
// The server that the options describe; `files_per_connection` as in ServerOptions.
ServerOptions ServerOptionsOf(const ServingOptions& options, int64_t files_per_connection);
// The listener's certificate; null: no TLS. kInvalidArgument names the option.
Result<std::shared_ptr<TlsContext>> ListenerTls(const ServingOptions& options);
Result<std::shared_ptr<TlsContext>> ListenerTls(const std::string& certificate, const std::string& key,
                                                const std::string& client_ca);
// Logs a warning if other machines can reach the server and it needs no key.
void WarnIfOpen(const ServingOptions& options, const std::string& url, const Log& log);

}  // namespace tactus::http
