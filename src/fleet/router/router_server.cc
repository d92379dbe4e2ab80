#include "fleet/router/router_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>

#include "api/apis.h"
#include "api/paths.h"
#include "base/fleet_secret.h"
#include "base/json.h"
#include "base/json_text.h"
#include "base/worker_pool.h"
#include "fleet/router/discovery.h"
#include "fleet/router/fleet_events.h"
#include "fleet/router/fleet_json.h"
#include "fleet/router/fleet_watch.h"
#include "fleet/router/forward.h"
#include "fleet/router/mover.h"
#include "http/access.h"
#include "http/client_counts.h"
#include "http/event_viewers.h"
#include "http/page.h"
#include "http/server.h"
#include "http/server_metrics.h"
#include "results/obs/prometheus_text.h"
#include "tactus/version.h"

namespace tactus::fleet {
namespace {

constexpr DurationNs kConnectNs = 5 * kSecond;
constexpr DurationNs kPruneNs = 10 * kSecond, kIdleNs = 30 * kSecond;  // for connections to replicas
constexpr int64_t kHeavyBodyBytes = 256 << 10;                         // larger bodies are parsed on a separate thread

constexpr const char* kNoMemory = "the router has no memory left for this request; try again";
constexpr std::string_view kOpenApi = "/openapi.json";  // replicas serve it without a key
constexpr std::string_view kEvents = "/events";

bool IsAdmin(const std::string& path) {
  return path == "/fleet/replicas" || path == "/fleet/drain" || path == "/fleet/undrain";
}

constexpr std::string_view kPage = "/page/";  // the files of the page at "/"

bool IsOpen(const std::string& path) {
  return path == "/health" || path == "/ready" || path == "/metrics" || path == "/version" || path == "/" ||
         path.starts_with(kPage);
}

// Routes whose data is on one replica only.
bool IsStored(const std::string& path) {
  return path.starts_with("/v1/files") || path.starts_with("/v1/batches");
}

bool IsForwarded(const std::string& path) {
  return path.starts_with("/v1/") || path == "/tokenize" || path == "/detokenize" || path == kOpenApi;
}

bool IsLoopbackPeer(const std::string& peer) {
  return peer == "::1" || peer.starts_with("127.") || peer.starts_with("::ffff:127.");
}

// A proxy on this machine forwards requests of others.
bool IsProxied(const http::HttpRequest& request) {
  return std::any_of(request.headers.begin(), request.headers.end(), [](const auto& header) {
    return http::EqualsIgnoreCase(header.first, "X-Forwarded-For") ||
           http::EqualsIgnoreCase(header.first, "Forwarded") || http::EqualsIgnoreCase(header.first, "X-Real-IP") ||
           http::EqualsIgnoreCase(header.first, "Via");
  });
}

class RouterServerImpl final : public RouterServer, public http::Handler {
 public:
  RouterServerImpl(const RouterOptions& options, Clock& clock, Log log, RouteRecorder* recorder,
                   const http::RequestReports* reports)
      : options_(options),
        clock_(clock),
        recorder_(recorder),
        reports_(reports),
        log_(log ? std::move(log) : [](std::string_view) {}),
        keys_(options.api_key),
        admin_(options.admin_key.empty() ? std::vector<std::string>() : std::vector<std::string>{options.admin_key}),
        origins_(options.allowed_origins),
        places_(options.max_streams_per_client),
        secret_(http::RandomBits()) {
    viewers_.Start(FleetHello(options.fleet.balancer));
  }

  ~RouterServerImpl() override {
    reader_.Stop();
    if (server_) server_->Stop();  // every exchange loses its client, which ends its forward
    active_.clear();
    mover_.reset();
    context_.reset();
    discovery_.reset();
    watch_.reset();
    clients_.clear();
  }

  Status Bind();

  uint16_t port() const override { return server_->port(); }
  int64_t ready_replicas() const override { return watch_->ready(); }
  int64_t replicas() const override { return watch_->size(); }
  std::string model() const override { return watch_->model(); }
  int64_t in_flight() const override { return server_->Stats().exchanges; }
  void StopAdmission() override {
    draining_.store(true);
    server_->SetDraining();
    server_->loop().Post([this] { viewers_.Stop("the router stops"); });
  }
  bool WaitUntilIdle(DurationNs timeout_ns) override { return server_->WaitUntilIdle(timeout_ns); }
  Status ReloadTls() override;
  Status SetKeys(std::vector<std::string> api_keys, std::string admin_key) override;
  void CutOff() override {
    server_->loop().Post([this] {
      for (const auto& weak : std::vector(active_)) {
        if (const auto forward = weak.lock()) forward->CutOff();
      }
    });
  }

  std::optional<http::HttpResponse> CheckHead(const http::HttpRequest& head) override;
  void Handle(std::shared_ptr<http::Exchange> exchange) override;
  bool IsProbe(const http::HttpRequest& head) override {
    const std::string path = api::CanonicalPath(head.path);
    return path == "/health" || path == "/ready";
  }
  http::HttpResponse ErrorResponse(int status, const std::string& message) override {
    http::HttpResponse response;
    response.status = status;
    response.body = api::ErrorText(status, message);
    http::AddRetryAfter(&response);
    return response;
  }
  void OnTick(TimeNs now_ns) override;
  void OnAnswered(const http::Answered& answered) override {
    if (reports_ == nullptr) return;
    const std::string path = api::CanonicalPath(answered.request.path);
    http::Answered named = answered;
    http::RequestFacts facts;
    if (answered.facts != nullptr) {
      facts = *answered.facts;
      if (const auto key = keys_.Find(answered.request)) facts.client = http::KeyName(*key);
      named.facts = &facts;
    }
    reports_->Report(named, IsOpen(path) || path == kOpenApi);
  }

 private:
  http::Headers CommonHeaders(const http::HttpRequest& request) const;
  http::HttpResponse Error(const http::HttpRequest& request, int status, const std::string& message,
                           const std::string& param = {}) const;
  // `path`: the path of the head, normalised as in api/paths.h.
  std::optional<http::HttpResponse> CheckAccess(const http::HttpRequest& head, const std::string& path) const;
  std::optional<http::HttpResponse> CheckAdminRights(const http::HttpRequest& head) const;
  std::optional<http::HttpResponse> CheckAdmin(const http::HttpRequest& head, const std::string& path) const;
  http::HttpResponse Own(const http::HttpRequest& request, const std::string& path) const;
  void AnswerEvents(const std::shared_ptr<http::Exchange>& exchange);
  http::HttpResponse Admin(const http::HttpRequest& request, const std::string& path, const http::Body& body);
  void ForwardOn(std::shared_ptr<http::Exchange> exchange);
  void Refused(const http::HttpRequest& request);
  struct Request;
  void Begin(Request request);
  http::Client& ClientOf(const std::string& url);
  void Lost(int32_t replica);
  std::string Metrics() const;

  const RouterOptions options_;
  Clock& clock_;
  RouteRecorder* const recorder_;
  const http::RequestReports* const reports_;  // null: none
  const Log log_;
  std::shared_ptr<http::TlsContext> tls_;  // null: no TLS; set before the server starts
  http::ApiKeys keys_, admin_;
  const http::Origins origins_;
  http::ClientCounts places_;
  const Hash128 secret_;
  std::optional<const http::AllowedHosts> hosts_;
  std::atomic<bool> draining_{false};
  WorkerPool reader_{1, "tactus-read"};
  std::unique_ptr<http::Server> server_;
  // The members below are used on the io thread.
  std::unique_ptr<FleetWatch> watch_;
  std::unique_ptr<Discovery> discovery_;
  std::unique_ptr<ForwardContext> context_;
  std::unique_ptr<Mover> mover_;                                  // null: no secret
  std::map<std::string, std::unique_ptr<http::Client>> clients_;  // by URL
  std::vector<std::weak_ptr<Forward>> active_;
  TimeNs prune_ns_ = 0;
  http::EventViewers viewers_;
};

Status RouterServerImpl::Bind() {
  TACTUS_RETURN_IF_ERROR(RouterServer::Check(options_));
  std::optional<FleetKeys> keys;
  if (!options_.kv_secret_file.empty()) {
    TACTUS_ASSIGN_OR_RETURN(const std::string secret, ReadFleetSecret(options_.kv_secret_file));
    keys = FleetKeysOf(secret);
  }
  http::ServerOptions server = http::ServerOptionsOf(options_, kFilesPerConnection);
  TACTUS_ASSIGN_OR_RETURN(tls_, http::ListenerTls(options_));
  server.tls = tls_;
  TACTUS_ASSIGN_OR_RETURN(server_, http::Server::Listen(server, this, clock_));
  hosts_.emplace(options_.allowed_hosts, options_.host, server_->loopback());
  TACTUS_ASSIGN_OR_RETURN(watch_, FleetWatch::Create(options_.fleet, clock_, server_->loop(), log_));
  TACTUS_ASSIGN_OR_RETURN(discovery_, Discovery::Create(options_.fleet, server_->loop(), *watch_, log_));
  watch_->OnLost([this](int32_t replica) { Lost(replica); });
  context_.reset(new ForwardContext{.options = options_,
                                    .watch = *watch_,
                                    .clock = clock_,
                                    .loop = server_->loop(),
                                    .client = [this](const std::string& url) -> http::Client& { return ClientOf(url); },
                                    .counts = {}});
  context_->recorder = recorder_;
  context_->noted = reports_ != nullptr;
  if (keys) {
    context_->keys = *keys;
    mover_ = std::make_unique<Mover>(*keys, options_.rebalance_interval.ns, *watch_, clock_, server_->loop(), log_,
                                     context_->counts.migrations);
  }
  server_->Start();
  return Status();
}

Status RouterServerImpl::ReloadTls() {
  const Status listener = tls_ ? tls_->Reload() : Status();
  const Status replicas = watch_->tls()->Reload();
  if (tls_ && !tls_->Warning().empty()) log_("warning: " + tls_->Warning());
  return listener.ok() ? replicas : listener;
}

Status RouterServerImpl::SetKeys(std::vector<std::string> api_keys, std::string admin_key) {
  TACTUS_RETURN_IF_ERROR(http::CheckApiKeys(api_keys));
  if (!admin_key.empty()) TACTUS_RETURN_IF_ERROR(http::CheckKey("admin-key", admin_key));
  if (api_keys.empty() && !keys_.empty())
    return InvalidArgument("--api-key: no key is left; restart the router to serve all clients", "api-key");
  if (admin_key.empty() && !admin_.empty())
    return InvalidArgument("--admin-key: no key is left; restart the router to serve without", "admin-key");
  keys_.Replace(api_keys, {});
  admin_.Replace({std::move(admin_key)}, {});
  return Status();
}

http::Headers RouterServerImpl::CommonHeaders(const http::HttpRequest& request) const {
  http::Headers headers;
  const std::string* given = request.Find("X-Request-Id");
  headers.emplace_back("X-Request-Id", given != nullptr && http::ValidRequestId(*given) ? *given : http::RandomId());
  origins_.AppendHeaders(request, false, &headers);
  return headers;
}

http::HttpResponse RouterServerImpl::Error(const http::HttpRequest& request, int status, const std::string& message,
                                           const std::string& param) const {
  http::HttpResponse response;
  response.status = status;
  response.headers = CommonHeaders(request);
  response.body = api::ApiOfPath(request.path).error_text(status, message, param);
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  http::AddRetryAfter(&response);
  return response;
}

std::optional<http::HttpResponse> RouterServerImpl::CheckHead(const http::HttpRequest& head) {
  if (!hosts_->Allows(head.authority)) {
    return Error(
        head, 403,
        fmt::format("Host: '{}' is not a name of this server (--allowed-hosts)", head.authority.substr(0, 256)),
        "Host");
  }
  if (head.method == "OPTIONS") {
    http::HttpResponse response;
    response.status = 204;
    response.content_type.clear();
    response.headers.emplace_back("Allow", "GET, HEAD, POST, DELETE, OPTIONS");
    origins_.AppendHeaders(head, true, &response.headers);
    return response;
  }
  const std::string path = api::CanonicalPath(head.path);
  if (IsAdmin(path)) return CheckAdmin(head, path);
  if (IsOpen(path)) {
    if (head.method == "GET" || head.method == "HEAD") return std::nullopt;
    return Error(head, 405, fmt::format("{} takes GET, not {}", head.path, head.method));
  }
  return CheckAccess(head, path);
}

std::optional<http::HttpResponse> RouterServerImpl::CheckAccess(const http::HttpRequest& head,
                                                                const std::string& path) const {
  if (!IsForwarded(path) && path != kEvents) return Error(head, 404, api::NoRouteText(head.path, api::Asked::kRouter));
  if (path == kEvents) {  // it shows what /fleet/replicas shows
    if (auto refused = CheckAdminRights(head)) return refused;
    // Pages of other sites cannot read the stream, but would take the places of viewers.
    if (!origins_.Allow(head)) return Error(head, 403, "Origin: not allowed to watch (--allowed-origins)", "Origin");
  } else if (!keys_.empty() && path != kOpenApi && !keys_.Find(head)) {
    return Error(head, 401, "missing or wrong API key; send it as 'Authorization: Bearer <key>' or 'x-api-key: <key>'");
  }
  if (const std::string* id = head.Find("X-Request-Id"); id != nullptr && !http::ValidRequestId(*id)) {
    return Error(head, 400, fmt::format("X-Request-Id: {} bytes; give 1 to 256 visible ASCII characters", id->size()),
                 "X-Request-Id");
  }
  if (IsStored(path)) {
    return Error(head, 501, fmt::format("{}: files and batches are stored on one replica; send them to it", head.path));
  }
  if (head.method != "GET" && head.method != "HEAD" && head.method != "POST")
    return Error(head, 405, fmt::format("{} takes GET and POST, not {}", head.path, head.method));
  if (path == kEvents && head.method == "POST")
    return Error(head, 405, fmt::format("{} takes GET, not POST", head.path));
  if (draining_.load()) return Error(head, 503, "the router is stopping");
  return std::nullopt;
}

std::optional<http::HttpResponse> RouterServerImpl::CheckAdminRights(const http::HttpRequest& head) const {
  if (admin_.empty() && (!IsLoopbackPeer(head.peer) || IsProxied(head)))
    return Error(head, 403, "only this machine may see and change the fleet; set --admin-key to permit others");
  if (!admin_.empty() && !admin_.Find(head.Find("Authorization")))
    return Error(head, 401, "missing or wrong admin key; send it as 'Authorization: Bearer <key>' (--admin-key)");
  return std::nullopt;
}

std::optional<http::HttpResponse> RouterServerImpl::CheckAdmin(const http::HttpRequest& head,
                                                               const std::string& path) const {
  if (auto refused = CheckAdminRights(head)) return refused;
  const bool list = path == "/fleet/replicas";
  const bool takes = head.method == "POST" || (list && (head.method == "GET" || head.method == "DELETE"));
  if (!takes)
    return Error(head, 405,
                 fmt::format("{} takes {}, not {}", head.path, list ? "GET, POST and DELETE" : "POST", head.method));
  // Browsers send other types to any site without first asking it for permission.
  const std::string* type = head.Find("Content-Type");
  if (head.method != "GET" && (type == nullptr || !type->starts_with("application/json")))
    return Error(head, 415, "Content-Type: give application/json", "Content-Type");
  return std::nullopt;
}

void RouterServerImpl::Handle(std::shared_ptr<http::Exchange> exchange) {
  const http::HttpRequest& request = exchange->request();
  const std::string path = api::CanonicalPath(request.path);
  if (IsOpen(path)) return exchange->Respond(Own(request, path));
  if (IsAdmin(path)) {
    const http::Body body = exchange->TakeBody();
    return exchange->Respond(Admin(request, path, body));
  }
  if (path == kEvents) return AnswerEvents(exchange);
  ForwardOn(std::move(exchange));
}

void RouterServerImpl::AnswerEvents(const std::shared_ptr<http::Exchange>& exchange) {
  const http::HttpRequest& request = exchange->request();
  const Status answered = viewers_.Answer(exchange, CommonHeaders(request), request.peer, {});
  if (!answered.ok()) exchange->Respond(Error(request, api::HttpStatusOf(answered.code()), answered.message()));
}

http::HttpResponse RouterServerImpl::Own(const http::HttpRequest& request, const std::string& path) const {
  http::HttpResponse response;
  response.headers = CommonHeaders(request);
  if (path == "/health") {
    response.body = "{\"status\":\"ok\"}";
  } else if (path == "/ready") {
    const int64_t ready = watch_->ready();
    const char* state = draining_.load() ? "draining" : ready == 0 ? "no replica is ready" : "ready";
    response.status = ready > 0 && !draining_.load() ? 200 : 503;
    response.body = fmt::format("{{\"status\":\"{}\",\"replicas\":{}}}", state, ready);
    http::AddRetryAfter(&response);
  } else if (path == "/metrics") {
    response.content_type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = Metrics();
  } else if (path == "/" || path.starts_with(kPage)) {
    const std::string_view file = path == "/" ? "index.html" : std::string_view(path).substr(kPage.size());
    if (!http::AnswerPageFile(request, file, &response))
      return Error(request, 404, api::NoRouteText(request.path, api::Asked::kRouter));
  } else {
    response.body = fmt::format("{{\"version\":\"{}\",\"build\":\"{}\"}}", Version(), BuildInfo());
  }
  return response;
}

http::HttpResponse RouterServerImpl::Admin(const http::HttpRequest& request, const std::string& path,
                                           const http::Body& body) {
  if (request.method != "GET") {
    const auto parsed = json_text::ParseJson(body.text(), {.max_values = 100});
    if (!parsed.ok()) return Error(request, 400, parsed.status().message());
    const auto url = parsed->is_object() ? parsed->find("url") : parsed->end();
    if (!parsed->is_object() || url == parsed->end() || !url->is_string())
      return Error(request, 400, "url: give the replica's, {\"url\": \"http://host:port\"}", "url");
    const std::string text = url->get<std::string>();
    const Status done = path == "/fleet/drain"     ? watch_->SetDraining(text, true)
                        : path == "/fleet/undrain" ? watch_->SetDraining(text, false)
                        : request.method == "POST" ? watch_->Add(text)
                                                   : watch_->Remove(text);
    if (!done.ok()) return Error(request, api::HttpStatusOf(done.code()), done.message(), "url");
  }
  http::HttpResponse response;
  response.headers = CommonHeaders(request);
  response.body = FleetJson(*watch_);
  return response;
}

// A request that was read and is not sent yet.
struct RouterServerImpl::Request {
  std::shared_ptr<http::Exchange> exchange;
  http::Body body;
  http::Headers headers;
  http::ClientCounts::Places places;
  RequestView view;
};

void RouterServerImpl::ForwardOn(std::shared_ptr<http::Exchange> exchange) {
  const http::HttpRequest& request = exchange->request();
  const auto key = keys_.Find(request);
  auto places = places_.Enter(key ? http::KeyName(*key) : request.peer);
  if (!places.ok()) {
    if (recorder_ != nullptr && IsRecorded(request)) Refused(request);
    return exchange->Respond(Error(
        request, 429,
        fmt::format("{} requests of this client are in flight, the limit (--max-streams-per-client); try again when "
                    "some have ended",
                    options_.max_streams_per_client)));
  }
  http::Headers headers = CommonHeaders(request);
  http::Body body = exchange->TakeBody();
  Request whole{std::move(exchange), std::move(body), std::move(headers), std::move(*places), {}};
  if (whole.body.bytes() <= kHeavyBodyBytes) {
    whole.view = ViewRequest(whole.body.text(), secret_);
    return Begin(std::move(whole));
  }
  auto heavy = std::make_shared<Request>(std::move(whole));
  reader_.Post([this, heavy] {
    const std::shared_ptr<http::Exchange> unanswered = heavy->exchange;
    try {
      heavy->view = ViewRequest(heavy->body.text(), secret_);
      server_->loop().Post([this, heavy] { Begin(std::move(*heavy)); });
    } catch (const std::exception&) {
      unanswered->Respond(Error(unanswered->request(), 503, kNoMemory));
    }
  });
}

void RouterServerImpl::Refused(const http::HttpRequest& request) {
  const std::string* id = request.Find("X-Request-Id");
  const TimeNs now_ns = clock_.NowNs();
  recorder_->Ended(recorder_->Arrived(now_ns), {RouteRecorder::End::How::kRejected},
                   id != nullptr ? *id : std::string_view(), now_ns);
}

void RouterServerImpl::Begin(Request request) {
  const std::shared_ptr<http::Exchange> unanswered = request.exchange;
  try {
    auto forward =
        std::make_shared<Forward>(*context_, std::move(request.exchange), std::move(request.view),
                                  std::move(request.body), std::move(request.headers), std::move(request.places));
    active_.push_back(forward);
    forward->Start();
  } catch (const std::exception&) {
    unanswered->Respond(Error(unanswered->request(), 503, kNoMemory));
  }
}

http::Client& RouterServerImpl::ClientOf(const std::string& url) {
  std::unique_ptr<http::Client>& client = clients_[url];
  if (!client) {
    http::ClientOptions options;
    options.connect_timeout_ns = kConnectNs;
    options.tls = watch_->tls();
    options.pieces = true;
    client = std::make_unique<http::Client>(*http::ParseUrl(url), options, clock_, server_->loop());
  }
  return *client;
}

void RouterServerImpl::Lost(int32_t replica) {
  const TimeNs silent_since_ns = clock_.NowNs() - options_.fleet.dead_after.ns;
  for (const auto& weak : std::vector(active_)) {
    if (const auto forward = weak.lock()) forward->Lost(replica, silent_since_ns);
  }
}

void RouterServerImpl::OnTick(TimeNs now_ns) {
  std::erase_if(active_, [now_ns](const std::weak_ptr<Forward>& weak) {
    const auto forward = weak.lock();
    if (forward) forward->Tick(now_ns);
    return !forward || forward->over();
  });
  if (!viewers_.BeginFrame().empty()) {
    const std::string frame = FleetFrame(*watch_, context_->counts, now_ns);
    viewers_.EndFrame([&frame](const auto&) -> std::string_view { return frame; });
  }
  if (now_ns < prune_ns_) return;
  prune_ns_ = now_ns + kPruneNs;
  for (const auto& [url, client] : clients_) client->CloseIdle(kIdleNs);
  const std::vector<Endpoint> all = watch_->Endpoints();
  std::erase_if(clients_, [&](const auto& entry) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const Endpoint& e) { return e.url == entry.first; });
    return !known && entry.second->in_flight() == 0;
  });
}

std::string RouterServerImpl::Metrics() const {
  using Type = results::PrometheusText::Type;
  const ForwardCounts& counts = context_->counts;
  results::PrometheusText t({});
  watch_->AppendMetrics(&t);
  t.Family("tactus_route_requests_total", Type::kCounter, "Answers of replicas, by status; 0: missing or incomplete.");
  for (const auto& [key, count] : counts.answers)
    t.Sample(static_cast<double>(count), {{"replica", key.first}, {"code", fmt::format("{}", key.second)}});
  t.Counter("tactus_route_retries_total", "Requests that were sent to another replica after one failed.",
            static_cast<double>(counts.retries));
  t.Counter("tactus_route_hedges_total", "Requests that were sent to a second replica because the first was slow.",
            static_cast<double>(counts.hedges));
  t.Counter("tactus_route_cut_streams_total", "Answers that began and ended with an error.",
            static_cast<double>(counts.cut_streams));
  t.Family("tactus_route_migrations_total", Type::kCounter, "Sequences that moved between replicas, by result.");
  for (const auto& [result, count] : counts.migrations) t.Sample(static_cast<double>(count), {{"result", result}});
  http::AppendServerMetrics(server_->Stats(), &t);
  if (reports_ != nullptr && reports_->traces() != nullptr) reports_->traces()->AppendMetrics(&t);
  return t.Take();
}

}  // namespace

Status RouterServer::Check(const RouterOptions& options) {
  TACTUS_RETURN_IF_ERROR(http::CheckServingOptions(options));
  if (!options.admin_key.empty()) TACTUS_RETURN_IF_ERROR(http::CheckKey("admin-key", options.admin_key));
  TACTUS_RETURN_IF_ERROR(FleetWatch::Check(options.fleet));
  return Discovery::Check(options.fleet);
}

Result<std::unique_ptr<RouterServer>> RouterServer::Listen(const RouterOptions& options, Clock& clock, Log log,
                                                           RouteRecorder* recorder,
                                                           const http::RequestReports* reports) {
  auto server = std::make_unique<RouterServerImpl>(options, clock, std::move(log), recorder, reports);
  TACTUS_RETURN_IF_ERROR(server->Bind());
  return std::unique_ptr<RouterServer>(std::move(server));
}

}  // namespace tactus::fleet
