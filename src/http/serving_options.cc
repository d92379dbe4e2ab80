#include "http/serving_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fleet_secret.h"
#include "http/access.h"
#include "http/traces.h"

namespace tactus::http {

Status CheckServingOptions(const ServingOptions& options) {
  if (options.host.empty()) {
    return InvalidArgument("--host is empty; give an address such as 127.0.0.1, or 0.0.0.0 to listen on every network",
                           "host");
  }
  TACTUS_RETURN_IF_ERROR(CheckApiKeys(options.api_key));
  TACTUS_RETURN_IF_ERROR(CheckAllowedHosts(options.allowed_hosts));
  TACTUS_RETURN_IF_ERROR(CheckBodyLimits(options.max_body.bytes, options.max_body_total.bytes));
  TACTUS_RETURN_IF_ERROR(ListenerTls(options).status());
  if (!options.otlp_traces_endpoint.empty()) TACTUS_RETURN_IF_ERROR(TraceExporter::Check(options.otlp_traces_endpoint));
  return options.kv_secret_file.empty() ? Status() : ReadFleetSecret(options.kv_secret_file).status();
}

ServerOptions ServerOptionsOf(const ServingOptions& options, int64_t files_per_connection) {
  ServerOptions server;
  server.host = options.host;
  server.port = static_cast<uint16_t>(options.port);
  server.max_connections = options.max_connections;
  server.files_per_connection = files_per_connection;
  server.max_connections_per_client = options.max_connections_per_client;
  server.max_body_bytes = options.max_body.bytes;
  server.max_body_total_bytes = options.max_body_total.bytes;
  server.idle_timeout_ns = options.idle_timeout.ns;
  server.body_timeout_ns = options.read_timeout.ns;
  server.header_timeout_ns = std::min(server.header_timeout_ns, options.read_timeout.ns);
  server.write_timeout_ns = options.write_timeout.ns;
  return server;
}

Result<std::shared_ptr<TlsContext>> ListenerTls(const ServingOptions& options) {
  return ListenerTls(options.tls_cert, options.tls_key, options.tls_client_ca);
}

Result<std::shared_ptr<TlsContext>> ListenerTls(const std::string& certificate, const std::string& key,
                                                const std::string& client_ca) {
  if (certificate.empty() && key.empty()) {
    if (client_ca.empty()) return std::shared_ptr<TlsContext>();
    return InvalidArgument("--tls-client-ca: client certificates need TLS; give --tls-cert and --tls-key too",
                           "tls-client-ca");
  }
  return TlsContext::ForServer({"tls-cert", certificate}, {"tls-key", key}, {"tls-client-ca", client_ca});
}

Result<std::shared_ptr<TlsContext>> ReplicaTlsOptions::Context() const {
  return TlsContext::ForClient({"replica-ca", replica_ca}, {"replica-cert", replica_cert}, {"replica-key", replica_key},
                               replica_tls_name);
}

void WarnIfOpen(const ServingOptions& options, const std::string& url, const Log& log) {
  if (IsLoopback(options.host) || !options.api_key.empty()) return;
  log(fmt::format("warning: {} is reachable from other machines and needs no key; set --api-key", url));
}

}  // namespace tactus::http
