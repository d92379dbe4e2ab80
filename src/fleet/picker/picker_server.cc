#include "fleet/picker/picker_server.h"

#include <fmt/format.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <atomic>
#include <optional>

#include "base/json_text.h"
#include "fleet/picker/ext_proc_service.h"
#include "http/acceptor.h"
#include "http/access.h"
#include "http/connection_places.h"
#include "http/server.h"
#include "http/serving_options.h"
#include "http/serving_process.h"
#include "http/tls.h"
#include "results/obs/prometheus_text.h"

namespace tactus::fleet {
namespace {

constexpr const char* kAliveNames[] = {"liveness"};
// The last one is the name that probes of older manifests use.
constexpr const char* kReadyNames[] = {"readiness", "envoy.service.ext_proc.v3.ExternalProcessor",
                                       "inference-extension"};
// For a data plane that vanished: its streams end after both times. It may ping at any rate.
constexpr int kPingMs = 30'000, kPingAnswerMs = 10'000;
constexpr int64_t kGrpcBytes = 64 << 20;        // for connections and streams, besides their messages
constexpr int kGreetingMs = 10'000;             // time for a connection to send its HTTP/2 preface
constexpr int kMessageOverheadBytes = 1 << 20;  // for headers and metadata besides a body
constexpr DurationNs kTickNs = 50 * kMillisecond;

BodyMode ModeNamed(const std::string& name) {
  if (name == "streamed") return BodyMode::kStreamed;
  if (name == "buffered") return BodyMode::kBuffered;
  return name == "none" ? BodyMode::kNone : BodyMode::kFullDuplex;
}

// The certificate that new connections get. gRPC asks for it at each handshake.
struct ReloadedCertificate {
  std::shared_ptr<http::TlsContext> tls;
  std::atomic<uint64_t> loads{1};
};

// gRPC's C++ library has no credentials whose certificate changes on request, its C library has. (The C++ ones that
// watch files read them at intervals, and accept a pair that does not fit.)
class ReloadedCredentials final : public grpc::ServerCredentials {
 public:
  explicit ReloadedCredentials(std::shared_ptr<ReloadedCertificate> certificate)
      : certificate_(std::move(certificate)),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
                                                                            Fetch, this))) {}
  // After the server's end, whose handshakes call Fetch.
  ~ReloadedCredentials() override { grpc_server_credentials_release(credentials_); }
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }
  // Called before each handshake, by the one thread that accepts connections (gRPC has no lock here).
  static grpc_ssl_certificate_config_reload_status Fetch(void* self, grpc_ssl_server_certificate_config** config) {
    auto* const me = static_cast<ReloadedCredentials*>(self);
    const uint64_t loads = me->certificate_->loads.load();
    if (loads == me->fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const http::TlsContext::Pem pem = me->certificate_->tls->Current();
    if (pem.certificate.empty() || pem.key.empty()) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;  // no memory
    const grpc_ssl_pem_key_cert_pair pair{pem.key.c_str(), pem.certificate.c_str()};
    // gRPC wants authorities for clients even where it asks them for no certificate.
    *config = grpc_ssl_server_certificate_config_create(pem.certificate.c_str(), &pair, 1);
    me->fetched_ = loads;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<ReloadedCertificate> certificate_;
  std::atomic<uint64_t> fetched_{0};
  grpc_server_credentials* const credentials_;
};

std::shared_ptr<grpc::ServerCredentials> Credentials(const std::shared_ptr<ReloadedCertificate>& certificate) {
  if (certificate == nullptr) return grpc::InsecureServerCredentials();
  return std::make_shared<ReloadedCredentials>(certificate);
}

std::string AddressOf(const std::string& host, int64_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

// The response to a data plane beyond the connection limit: HTTP/2 SETTINGS and a GOAWAY with the reason.
std::string GoAway(std::string_view why) {
  constexpr std::string_view kSettings("\0\0\0\x04\0\0\0\0\0", 9);
  constexpr std::string_view kLastStreamAndCalm("\0\0\0\0\0\0\0\x0b", 8);  // no stream, ENHANCE_YOUR_CALM
  constexpr std::string_view kGoAwayType("\x07\0\0\0\0\0", 6);
  std::string frame(kSettings);
  const size_t length = kLastStreamAndCalm.size() + why.size();
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(length >> shift);
  frame += kGoAwayType;
  frame += kLastStreamAndCalm;
  return frame += why;
}

// A gRPC server behind our own listener: gRPC's own one stops permanently if descriptors run out.
struct GrpcServer {
  std::shared_ptr<grpc::ServerCredentials> credentials;  // destroyed last: handshakes use them
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> door;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<http::Acceptor> listener;  // destroyed first

  // `builder` has the services.
  Status Start(const char* flag, const std::string& host, int64_t port, int64_t connections,
               const std::shared_ptr<ReloadedCertificate>& certificate, grpc::ServerBuilder& builder) {
    const std::string why =
        fmt::format("the limit of {} connections, or of half as many per client, is reached (ulimit -n)", connections);
    auto listening = http::Acceptor::Listen(
        {.host = host, .port = static_cast<uint16_t>(port), .max_connections = connections, .refusal = GoAway(why)});
    if (!listening.ok()) {
      return Status(StatusCode::kUnavailable,
                    fmt::format("--{}: cannot listen on {}: {}; use another port or --host, or 0 for any free port",
                                flag, AddressOf(host, port), listening.status().message()),
                    flag);
    }
    credentials = Credentials(certificate);
    using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    door = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, credentials);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingAnswerMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);  // any number of pings is allowed
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kGreetingMs);
    server = builder.BuildAndStart();
    if (server == nullptr)
      return Status(StatusCode::kUnavailable, fmt::format("--{}: gRPC does not start", flag), flag);
    listener = std::move(*listening);
    listener->Start([to = door.get()](int socket) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = socket;
      to->HandleNewConnection(&connection);
    });
    return Status();
  }
};

}  // namespace

struct PickerServer::Impl final : http::Handler {
  Impl(Picker& p, EndpointSource& s) : picker(p), source(s) {}
  ~Impl() override { http_server.reset(); }  // first, because it ticks

  Status Start(const EppOptions& options, Clock& clock);
  void TellHealth();
  std::optional<http::HttpResponse> CheckHead(const http::HttpRequest& head) override;
  void Handle(std::shared_ptr<http::Exchange> exchange) override;
  http::HttpResponse ErrorResponse(int status, const std::string& message) override;
  void OnTick(TimeNs) override { TellHealth(); }
  bool Ready() const { return seen_ready.load() && !stopping.load(); }

  Picker& picker;
  EndpointSource& source;
  std::atomic<bool> seen_ready{false}, stopping{false};
  std::shared_ptr<ReloadedCertificate> certificate;  // null: no TLS
  std::shared_ptr<grpc::Service> service;
  grpc::CallbackGenericService others;  // for health_server, which needs a service besides gRPC's own
  GrpcServer service_server, health_server;
  std::unique_ptr<http::Server> http_server;
};

Status PickerServer::Impl::Start(const EppOptions& options, Clock& clock) {
  if (options.host.empty()) return InvalidArgument("--host is empty; use an address such as 127.0.0.1", "host");
  TACTUS_RETURN_IF_ERROR(http::CheckBodyLimits(options.max_body.bytes, options.max_body_total.bytes));
  TACTUS_ASSIGN_OR_RETURN(auto tls, http::ListenerTls(options.tls_cert, options.tls_key, {}));
  if (tls != nullptr) {
    certificate = std::make_shared<ReloadedCertificate>();
    certificate->tls = std::move(tls);
  }
  gpr_set_log_function([](gpr_log_func_args*) {});  // errors are reported here, once
  grpc::EnableDefaultHealthCheckService(true);
  service = MakeExtProcService(picker, ModeNamed(options.body_mode));
  grpc::ServerBuilder serving, probed;
  serving.RegisterService(service.get());
  serving.SetMaxReceiveMessageSize(
      static_cast<int>(std::min<int64_t>(2 * options.max_body.bytes + kMessageOverheadBytes, INT32_MAX)));
  // Limits gRPC's own memory: incomplete messages; gRPC ends streams when there are too many.
  grpc::ResourceQuota quota("tactus-epp");
  quota.Resize(static_cast<size_t>(options.max_body_total.bytes + kGrpcBytes));
  serving.SetResourceQuota(quota);
  const int64_t files = http::MostOpenFiles();
  const int64_t connections = http::RoomWithin(files, kMostConnections, 1).connections;
  const int64_t probes = std::clamp<int64_t>(connections / 8, 2, 256);
  TACTUS_RETURN_IF_ERROR(service_server.Start("grpc-port", options.host, options.grpc_port,
                                              std::max<int64_t>(2, connections - probes), certificate, serving));
  probed.RegisterCallbackGenericService(&others);
  TACTUS_RETURN_IF_ERROR(health_server.Start("health-port", options.host, options.health_port, probes,
                                             options.tls_ports == "all" ? certificate : nullptr, probed));
  TellHealth();
  http::ServerOptions http;
  http.host = options.host;
  http.port = static_cast<uint16_t>(options.metrics_port);
  http.max_connections = 64;
  http.max_files = std::max<int64_t>(16, files / 8);
  http.max_body_bytes = 4096;
  http.max_body_total_bytes = 1 << 20;
  http.tick_ns = kTickNs;
  if (certificate != nullptr && options.tls_ports != "grpc") http.tls = certificate->tls;
  auto listening = http::Server::Listen(http, this, clock);
  if (!listening.ok()) {
    return Status(listening.status().code(), "--metrics-port: " + listening.status().message(), "metrics-port");
  }
  http_server = std::move(listening).value();
  http_server->Start();
  return Status();
}

void PickerServer::Impl::TellHealth() {
  if (!seen_ready.load() && source.ready() > 0) seen_ready.store(true);
  for (grpc::Server* server : {service_server.server.get(), health_server.server.get()}) {
    grpc::HealthCheckServiceInterface* health = server->GetHealthCheckService();
    for (const char* name : kAliveNames) health->SetServingStatus(name, true);
    for (const char* name : kReadyNames) health->SetServingStatus(name, Ready());
  }
}

std::optional<http::HttpResponse> PickerServer::Impl::CheckHead(const http::HttpRequest& head) {
  if (head.path != "/metrics" && head.path != "/health" && head.path != "/ready") {
    return ErrorResponse(404, fmt::format("there is no {}; paths are /metrics, /health and /ready", head.path));
  }
  if (head.method != "GET" && head.method != "HEAD") return ErrorResponse(405, "use GET");
  return std::nullopt;
}

void PickerServer::Impl::Handle(std::shared_ptr<http::Exchange> exchange) {
  const std::string& path = exchange->request().path;
  if (path == "/metrics") {
    std::string text = picker.MetricsText();
    if (certificate != nullptr) {
      results::PrometheusText about({});
      about.Gauge("tactus_tls_not_after_seconds", "End of the validity of the listener's certificate, Unix time.",
                  static_cast<double>(certificate->tls->not_after_s()));
      text += about.Take();
    }
    exchange->Respond({.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = std::move(text)});
  } else if (path == "/health" || Ready()) {
    exchange->Respond({.body = "{\"status\": \"ok\"}\n"});
  } else {
    exchange->Respond(ErrorResponse(503, stopping.load() ? "stopping" : "no replica has been ready yet"));
  }
}

http::HttpResponse PickerServer::Impl::ErrorResponse(int status, const std::string& message) {
  std::string body = "{\"error\": {\"message\": ";
  json_text::AppendJsonString(&body, message);
  return {.status = status, .body = body + "}}\n"};
}

PickerServer::PickerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PickerServer::~PickerServer() {
  Stop(0);
}

Result<std::unique_ptr<PickerServer>> PickerServer::Start(const EppOptions& options, Picker& picker,
                                                          EndpointSource& source, Clock& clock) {
  auto impl = std::make_unique<Impl>(picker, source);
  TACTUS_RETURN_IF_ERROR(impl->Start(options, clock));
  return std::unique_ptr<PickerServer>(new PickerServer(std::move(impl)));
}

int PickerServer::grpc_port() const {
  return impl_->service_server.listener->port();
}
int PickerServer::health_port() const {
  return impl_->health_server.listener->port();
}
int PickerServer::metrics_port() const {
  return impl_->http_server->port();
}

Status PickerServer::ReloadTls() {
  if (impl_->certificate == nullptr) return Status();
  TACTUS_RETURN_IF_ERROR(impl_->certificate->tls->Reload());
  impl_->certificate->loads.fetch_add(1);
  return Status();
}

std::string PickerServer::TlsWarning() const {
  return impl_->certificate == nullptr ? std::string() : impl_->certificate->tls->Warning();
}

bool PickerServer::Stop(DurationNs timeout_ns) {
  if (impl_->stopping.exchange(true)) return true;
  impl_->TellHealth();
  const auto now = [] { return gpr_now(GPR_CLOCK_MONOTONIC); };
  const gpr_timespec until = gpr_time_add(now(), gpr_time_from_nanos(timeout_ns, GPR_TIMESPAN));
  impl_->service_server.listener.reset();
  impl_->service_server.server->Shutdown(until);
  impl_->health_server.listener.reset();
  impl_->health_server.server->Shutdown(now());
  return gpr_time_cmp(now(), until) < 0;
}

}  // namespace tactus::fleet
