#include "serve/api_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "api/apis.h"
#include "api/chat/answer.h"
#include "api/chat/conversation.h"
#include "api/chat/request_fields.h"
#include "api/chat/response_text.h"
#include "api/explain_text.h"
#include "api/paths.h"
#include "api/token_routes.h"
#include "base/worker_pool.h"
#include "http/access.h"
#include "http/client_counts.h"
#include "http/page.h"
#include "http/server.h"
#include "http/server_metrics.h"
#include "results/obs/prometheus_text.h"
#include "serve/body_type.h"
#include "serve/calls/generation.h"
#include "serve/calls/stored_call.h"
#include "serve/calls/text_call.h"
#include "serve/file_api.h"
#include "serve/fleet_api.h"
#include "serve/live_viewers.h"
#include "serve/openapi.h"
#include "serve/routes.h"
#include "serve/simulations.h"
#include "tactus/version.h"

namespace tactus::serve {
namespace {

// Larger bodies occupy a parse thread for long; an ordinary request has a few KiB.
constexpr int64_t kHeavyBodyBytes = 256 << 10;

class ApiServerImpl final : public ApiServer, public http::Handler {
 public:
  ApiServerImpl(const ServeOptions& options, Clock& clock, Log log, std::optional<FleetKeys> fleet_keys,
                const http::RequestReports* reports)
      : options_(options),
        log_(log ? std::move(log) : [](std::string_view) {}),
        clock_(clock),
        fleet_keys_(fleet_keys),
        reports_(reports),
        keys_(options.api_key, options.api_key_class, fleet_keys_),
        origins_(options.allowed_origins),
        created_(UnixSeconds()),
        viewers_(clock),
        simulations_(clock),
        pool_(static_cast<int>(options.http_workers)) {}

  ~ApiServerImpl() override {
    server_.reset();  // ends handler calls; every open exchange loses its client, which cancels its request
    viewers_.Stop();
    simulations_.Stop();
    pool_.Stop();
    if (fleet_) fleet_->Stop();
    files_.reset();
  }

  Status Bind() {
    TACTUS_ASSIGN_OR_RETURN(files_, FileApi::Open(options_, keys_, log_));
    if (fleet_keys_) {
      TACTUS_ASSIGN_OR_RETURN(fleet_, FleetApi::Make(options_, *fleet_keys_, clock_, log_));
    }
    TACTUS_ASSIGN_OR_RETURN(tls_, http::ListenerTls(options_));
    http::ServerOptions listening = http::ServerOptionsOf(options_, 1);
    listening.tls = tls_;
    TACTUS_ASSIGN_OR_RETURN(server_, http::Server::Listen(listening, this, clock_));
    hosts_.emplace(options_.allowed_hosts, options_.host, server_->loopback());
    server_->Start();
    return Status();
  }

  uint16_t port() const override { return server_->port(); }
  Status ReloadTls() override;
  Status SetKeys(std::vector<std::string> api_keys, std::vector<std::string> classes) override;
  void SetStuck(bool stuck) override { stuck_.store(stuck); }
  void StopAdmission() override {
    draining_.store(true);
    server_->SetDraining();
    if (files_) files_->StopBeginning();
  }
  void FinishParsing(DurationNs timeout_ns) override {
    viewers_.Stop();  // they have seen the engine drain
    simulations_.Stop();
    pool_.WaitUntilIdle(timeout_ns);
    if (files_) files_->WaitUntilIdle(timeout_ns);
    ending_.store(true);
  }
  bool WaitUntilIdle(DurationNs timeout_ns) override { return server_->WaitUntilIdle(timeout_ns); }
  void SetEngine(Engine* engine, const EngineOptions& engine_options) override;

  std::optional<http::HttpResponse> CheckHead(const http::HttpRequest& head) override;
  std::shared_ptr<http::BodyReceiver> ReceiveBody(const http::HttpRequest& head) override;
  std::optional<http::BodyLimit> LimitOf(const http::HttpRequest& head) override {
    const RouteEntry* route = FindRoute(head.path);
    return route->fleet() ? fleet_->LimitOf(route->route) : std::nullopt;
  }
  void Handle(std::shared_ptr<http::Exchange> exchange) override;
  bool IsProbe(const http::HttpRequest& head) override {
    const RouteEntry* route = FindRoute(head.path);
    return route != nullptr && (route->route == Route::kHealth || route->route == Route::kReady);
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
    const RouteEntry* route = FindRoute(answered.request.path);
    reports_->Report(answered, route != nullptr && route->open);
  }

 private:
  // Null before SetEngine, and after the engine has failed.
  Engine* ready_engine() const {
    Engine* engine = engine_.load(std::memory_order_acquire);
    return engine != nullptr && engine->Stats().healthy ? engine : nullptr;
  }
  const char* StateName() const {
    if (engine_.load(std::memory_order_acquire) == nullptr) return "loading";
    if (ready_engine() == nullptr) return "unhealthy";
    if (stuck_.load()) return "stuck";
    return draining_.load() ? "draining" : "ready";
  }
  http::Headers CommonHeaders(const http::HttpRequest& request, std::string* request_id) const;
  http::HttpResponse Error(const http::HttpRequest& request, int status, const std::string& message,
                           const std::string& param = {});
  http::HttpResponse Error(const http::HttpRequest& request, const Status& status) {
    return Error(request, api::HttpStatusOf(status.code()), status.message(), status.param());
  }
  // The caller of a request, with one place taken: its API key if there are keys, else its address.
  Result<Caller> Admit(const http::HttpRequest& request);
  // The owner whose schedules a request may read: its own key.
  std::string OwnerOf(const http::HttpRequest& request) const;
  http::HttpResponse Explain(const http::HttpRequest& request, const std::string& id, const Engine& engine);
  // The client of an upload: its API key if there are keys, else its address.
  std::string ClientOf(const http::HttpRequest& request, std::optional<size_t> key) const {
    return key ? http::KeyName(*key) : request.peer;
  }
  std::optional<http::HttpResponse> CheckStored(const http::HttpRequest& head, Route route);
  void AnswerStored(std::shared_ptr<http::Exchange> exchange, Route route, std::string id);
  std::optional<http::HttpResponse> CheckFleet(const http::HttpRequest& head, Route route);
  void AnswerFleet(std::shared_ptr<http::Exchange> exchange, Route route, const std::string& id);
  http::HttpResponse Immediate(const http::HttpRequest& request, const RouteEntry& route, const std::string& id);
  void Generate(std::shared_ptr<http::Exchange> exchange, const api::Api& api);
  void AnswerText(std::shared_ptr<http::Exchange> exchange, TextCall::Answer answer);
  void AnswerEvents(std::shared_ptr<http::Exchange> exchange);
  void Simulate(std::shared_ptr<http::Exchange> exchange, bool capacity);
  void Post(std::shared_ptr<Call> call);
  std::string HttpMetrics() const;

  const ServeOptions options_;
  const Log log_;
  Clock& clock_;
  const std::optional<FleetKeys> fleet_keys_;  // nothing: no fleet
  const http::RequestReports* const reports_;  // null: none
  std::shared_ptr<http::TlsContext> tls_;      // null: no TLS; set before the server starts
  http::ApiKeys keys_;
  const http::Origins origins_;
  std::optional<const http::AllowedHosts> hosts_;  // set before the server starts
  const int64_t created_;
  LiveViewers viewers_;
  Simulations simulations_;
  // Filled by SetEngine, before engine_ is set.
  std::string openapi_;
  std::optional<http::ClientCounts> clients_;
  const std::shared_ptr<GenerationContext> context_ = std::make_shared<GenerationContext>();
  std::atomic<Engine*> engine_{nullptr};
  std::atomic<bool> draining_{false}, stuck_{false};
  std::atomic<bool> ending_{false};          // parse threads are no longer waited for
  std::vector<std::weak_ptr<Call>> active_;  // io thread
  std::unique_ptr<FileApi> files_;           // null: no --files-dir
  std::unique_ptr<FleetApi> fleet_;          // null: no --kv-secret-file
  WorkerPool pool_;
  std::unique_ptr<http::Server> server_;
};

Status ApiServerImpl::ReloadTls() {
  const Status listener = tls_ ? tls_->Reload() : Status();
  const Status replicas = fleet_ ? fleet_->tls()->Reload() : Status();
  if (tls_ && !tls_->Warning().empty()) log_("warning: " + tls_->Warning());
  return listener.ok() ? replicas : listener;
}

Status ApiServerImpl::SetKeys(std::vector<std::string> api_keys, std::vector<std::string> classes) {
  if (api_keys.empty() && !keys_.empty())
    return InvalidArgument("--api-key: no key is left; restart the server to serve all clients", "api-key");
  // On the io thread, on which keys of requests are looked up, so that no request meets half of the change.
  server_->loop().Post([this, api_keys = std::move(api_keys), classes = std::move(classes)] {
    keys_.Replace(api_keys, classes);
    if (files_) files_->SetOwners(api_keys);
  });
  return Status();
}

void ApiServerImpl::SetEngine(Engine* engine, const EngineOptions& engine_options) {
  const ModelInfo& model = engine->model();
  const BodyLimits bodies = options_.BodiesWithin(model.front_end_bytes);
  server_->LimitBodies(bodies.max_body_bytes, bodies.max_body_total_bytes);
  context_->kept_bodies->SetLimit(bodies.kept_bytes);
  clients_.emplace(http::ClientLimit(options_.max_streams_per_client, engine_options.max_queue));
  context_->engine = engine;
  context_->clock = &clock_;
  context_->noted = reports_ != nullptr;
  context_->request_timeout_ns = options_.request_timeout.ns;
  context_->ping_interval_ns = options_.ping_interval.ns;
  context_->post_rule = [this](const std::string& client, std::function<void()> task) {
    pool_.PostInTurn(client, std::move(task));
  };
  context_->limits =
      api::LimitsOf(*engine, engine_options.default_max_tokens, options_.tool_call_parser, options_.reasoning_parser);
  context_->limits.max_choices = options_.max_choices;
  context_->limits.strict_fields = options_.strict_fields;
  context_->fingerprint = api::Fingerprint(model);
  openapi_ = OpenApiText(context_->limits);
  simulations_.Start(engine, engine_options);
  viewers_.Start(engine, api::LiveHello(model, engine->Stats(), engine_options.scheduler));
  if (fleet_) fleet_->Start(engine, context_, &*clients_, bodies);
  if (files_) {
    const Status started = files_->Start(engine, engine_options, context_->limits, clock_);
    if (!started.ok()) log_("warning: batches do not run: " + started.message());
  }
  engine_.store(engine, std::memory_order_release);
}

http::Headers ApiServerImpl::CommonHeaders(const http::HttpRequest& request, std::string* request_id) const {
  http::Headers headers;
  const std::string* given = request.Find("X-Request-Id");
  *request_id = given != nullptr && http::ValidRequestId(*given) ? *given : http::RandomId();
  headers.emplace_back("X-Request-Id", *request_id);
  origins_.AppendHeaders(request, false, &headers);
  return headers;
}

http::HttpResponse ApiServerImpl::Error(const http::HttpRequest& request, int status, const std::string& message,
                                        const std::string& param) {
  std::string request_id;
  http::HttpResponse response;
  response.status = status;
  response.headers = CommonHeaders(request, &request_id);
  response.body = api::ApiOfPath(request.path).error_text(status, message, param);
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  http::AddRetryAfter(&response);
  return response;
}

std::optional<http::HttpResponse> ApiServerImpl::CheckHead(const http::HttpRequest& head) {
  // Not 421, after which a browser would retry on another connection.
  if (!hosts_->Allows(head.authority)) {
    return Error(
        head, 403,
        fmt::format("Host: '{}' is not a name of this server (--allowed-hosts)", head.authority.substr(0, 256)),
        "Host");
  }
  const RouteEntry* route = FindRoute(head.path);
  if (route == nullptr) return Error(head, 404, api::NoRouteText(head.path, api::Asked::kServer));
  if (head.method == "OPTIONS") {
    http::HttpResponse response;
    response.status = 204;
    response.content_type.clear();
    response.headers.emplace_back("Allow", route->Allow());
    origins_.AppendHeaders(head, true, &response.headers);
    return response;
  }
  if (!route->Takes(head.method)) {
    auto response =
        Error(head, 405, fmt::format("{} takes {}, not {}", head.path, route->Methods(" and "), head.method));
    response.headers.emplace_back("Allow", route->Allow());
    return response;
  }
  if (route->fleet()) return CheckFleet(head, route->route);
  if (!route->open && !keys_.empty() && !keys_.Find(head)) {
    return Error(head, 401, "missing or wrong API key; send it as 'Authorization: Bearer <key>' or 'x-api-key: <key>'");
  }
  // Pages of other sites cannot read the stream, but would take the places of viewers.
  if (route->route == Route::kEvents && !origins_.Allow(head))
    return Error(head, 403, "Origin: not allowed to watch (--allowed-origins)", "Origin");
  if (const std::string* id = head.Find("X-Request-Id"); id != nullptr && !http::ValidRequestId(*id)) {
    return Error(head, 400, fmt::format("X-Request-Id: {} bytes; give 1 to 256 visible ASCII characters", id->size()),
                 "X-Request-Id");
  }
  if (head.method == "POST") {
    if (const auto fault = CheckBodyType(head, route->route, origins_))
      return Error(head, fault->status, fault->message, fault->header);
  }
  const char* state = StateName();
  if (!route->open && std::string_view(state) != "ready") {
    return Error(head, 503, fmt::format("the server is not ready: {}", state));
  }
  return route->stored() ? CheckStored(head, route->route) : std::nullopt;
}

// A client without the secret gets no information about this server, and its body is not read.
std::optional<http::HttpResponse> ApiServerImpl::CheckFleet(const http::HttpRequest& head, Route route) {
  if (!fleet_) return Error(head, 404, fmt::format("{} does not exist here (--kv-secret-file)", head.path));
  if (const Status member = fleet_->CheckHead(head); !member.ok()) return Error(head, member);
  const std::string_view state = StateName();
  if (state == "ready" || (state == "draining" && route != Route::kFleetImport)) return std::nullopt;
  return Error(head, 503, fmt::format("the server is not ready: {}", state));
}

void ApiServerImpl::AnswerFleet(std::shared_ptr<http::Exchange> exchange, Route route, const std::string& id) {
  std::string request_id;
  http::Headers headers = CommonHeaders(exchange->request(), &request_id);
  if (route == Route::kFleetStream) return fleet_->Attach(std::move(exchange), id, headers);
  const http::HttpRequest& request = exchange->request();
  auto call = std::make_shared<StoredCall>(exchange, std::move(headers), clock_.NowNs(), options_.request_timeout.ns,
                                           [this, &request, route](const http::Body& body, StopToken) {
                                             return fleet_->Answer(route, request, body.text());
                                           });
  active_.push_back(call);
  call->Watch();
  fleet_->Post(route, [call = std::move(call)] { call->Run(); });
}

std::optional<http::HttpResponse> ApiServerImpl::CheckStored(const http::HttpRequest& head, Route route) {
  if (!files_) {
    return Error(
        head, 501,
        fmt::format("{}: this server keeps no files; start it with --files-dir and a folder for them", head.path));
  }
  const bool uploads = route == Route::kFiles && head.method == "POST";
  if (uploads && files_->TooManyUploads(ClientOf(head, keys_.Find(head))))
    return Error(head, 429, "this client has too many uploads open; try again when some have ended");
  return std::nullopt;
}

std::shared_ptr<http::BodyReceiver> ApiServerImpl::ReceiveBody(const http::HttpRequest& head) {
  if (head.method != "POST" || FindRoute(head.path)->route != Route::kFiles) return nullptr;
  const auto key = keys_.Find(head);
  std::string request_id;
  return files_->Receive(head, ClientOf(head, key), key, *http::MultipartBoundary(*head.Find("Content-Type")),
                         CommonHeaders(head, &request_id));
}

void ApiServerImpl::AnswerStored(std::shared_ptr<http::Exchange> exchange, Route route, std::string id) {
  const http::HttpRequest& request = exchange->request();
  const auto stored = static_cast<StoredRoute>(static_cast<int>(route) - static_cast<int>(Route::kFiles));
  std::string request_id;
  http::Headers headers = CommonHeaders(request, &request_id);
  // `request` stays valid: the call owns its exchange.
  auto call = std::make_shared<StoredCall>(
      exchange, std::move(headers), clock_.NowNs(), options_.request_timeout.ns,
      [this, &request, stored, id = std::move(id), key = keys_.Find(request)](const http::Body& body, StopToken) {
        return files_->Answer(stored, request, id, key, body.text());
      });
  active_.push_back(call);
  call->Watch();
  files_->Post([call = std::move(call)] { call->Run(); });
}

void ApiServerImpl::Handle(std::shared_ptr<http::Exchange> exchange) {
  const http::HttpRequest& request = exchange->request();
  std::string id;
  const RouteEntry& route = *FindRoute(request.path, &id);
  if (route.stored()) return AnswerStored(std::move(exchange), route.route, std::move(id));
  if (route.fleet()) return AnswerFleet(std::move(exchange), route.route, id);
  switch (route.route) {
    case Route::kCompletions:
      return Generate(std::move(exchange), api::kCompletionsApi);
    case Route::kChat:
      return Generate(std::move(exchange), api::kChatApi);
    case Route::kResponses:
      return Generate(std::move(exchange), api::kResponsesApi);
    case Route::kMessages:
      return Generate(std::move(exchange), api::kMessagesApi);
    case Route::kCountTokens:
      return AnswerText(std::move(exchange), api::AnswerCountTokens);
    case Route::kTokenize:
      return AnswerText(std::move(exchange), api::AnswerTokenize);
    case Route::kDetokenize:
      return AnswerText(std::move(exchange), api::AnswerDetokenize);
    case Route::kEvents:
      return AnswerEvents(std::move(exchange));
    case Route::kSimulate:
    case Route::kCapacity:
      return Simulate(std::move(exchange), route.route == Route::kCapacity);
    default:
      exchange->Respond(Immediate(request, route, id));
  }
}

// Answers from data in memory; never waits.
http::HttpResponse ApiServerImpl::Immediate(const http::HttpRequest& request, const RouteEntry& route,
                                            const std::string& id) {
  std::string request_id;
  http::HttpResponse response;
  response.headers = CommonHeaders(request, &request_id);
  Engine* engine = engine_.load(std::memory_order_acquire);
  const std::string state = StateName();
  switch (route.route) {
    case Route::kHealth:
      response.status = state == "unhealthy" || state == "stuck" ? 503 : 200;
      response.body = fmt::format("{{\"status\":\"{}\"}}", response.status == 503 ? state : "ok");
      break;
    case Route::kReady:
      response.status = state == "ready" ? 200 : 503;
      http::AddRetryAfter(&response);
      response.body = fmt::format("{{\"status\":\"{}\"}}", state);
      break;
    case Route::kMetrics:
      response.content_type = "text/plain; version=0.0.4; charset=utf-8";
      response.body = (engine != nullptr ? engine->MetricsText() : std::string()) + HttpMetrics();
      break;
    case Route::kVersion:
      response.body =
          fmt::format("{{\"version\":\"{}\",\"build\":\"{}\",\"batch_invariant\":true}}", Version(), BuildInfo());
      break;
    case Route::kFleetState:
      response.status = state == "ready" ? 200 : 503;
      response.body = FleetStateText(engine, state);
      break;
    case Route::kOpenApi:
      if (engine == nullptr) return Error(request, 503, "the server is not ready: " + state);
      response.body = openapi_;
      break;
    case Route::kPage:
      http::AnswerPageFile(request, "index.html", &response);
      break;
    case Route::kPageFile:
      if (!http::AnswerPageFile(request, id, &response))
        return Error(request, 404, api::NoRouteText(request.path, api::Asked::kServer));
      break;
    case Route::kModels:
      response.body = api::ModelsText(engine->model(), created_);
      break;
    case Route::kExplain:
      return Explain(request, id, *engine);
    case Route::kModel: {
      const ModelInfo& model = engine->model();
      const auto& others = model.other_names;
      if (id != model.name && std::find(others.begin(), others.end(), id) == others.end())
        return Error(request, api::NoSuchModel(id, model.name, others));
      response.body = api::ModelText(model, id, created_);
      break;
    }
    default:
      return Error(request, 500, "a route without an answer");
  }
  return response;
}

std::string ApiServerImpl::OwnerOf(const http::HttpRequest& request) const {
  const std::optional<size_t> key = keys_.Find(request);
  return key ? http::KeyName(*key) : std::string();
}

http::HttpResponse ApiServerImpl::Explain(const http::HttpRequest& request, const std::string& id,
                                          const Engine& engine) {
  const std::string owner = OwnerOf(request);
  auto prompts = engine.Timelines({.id = id, .owner = owner});
  // `id` is the X-Request-Id or the id of an answer.
  if (const auto inner = api::RequestIdOf(id); prompts.empty() && !inner.empty())
    prompts = engine.Timelines({.id = inner, .owner = owner});
  if (prompts.empty()) {
    return Error(
        request, 404,
        fmt::format("request '{}' is neither running nor among the last {} that ended; request it sooner, or send "
                    "'x-tactus-explain: 1' with the request",
                    id.substr(0, 256), engine.kept_timelines()),
        "id");
  }
  std::string request_id;
  http::HttpResponse response;
  response.headers = CommonHeaders(request, &request_id);
  response.body = api::ExplainText(prompts);
  return response;
}

Result<Caller> ApiServerImpl::Admit(const http::HttpRequest& request) {
  Caller caller;
  const std::optional<size_t> key = keys_.Find(request);
  caller.owner = OwnerOf(request);
  caller.client = ClientOf(request, key);
  if (key && keys_.size() > 1) caller.one_of_many = true;
  if (key && keys_.size() > 1 && !options_.share_prefix_cache) caller.cache_salt = keys_.Salt(*key);
  if (key) caller.slo_class = keys_.ClassOf(*key);
  TACTUS_ASSIGN_OR_RETURN(caller.places, clients_->Enter(caller.client));
  return caller;
}

void ApiServerImpl::Generate(std::shared_ptr<http::Exchange> exchange, const api::Api& api) {
  auto caller = Admit(exchange->request());
  if (!caller.ok()) return exchange->Respond(Error(exchange->request(), caller.status()));
  std::string request_id;
  http::Headers headers = CommonHeaders(exchange->request(), &request_id);
  auto generation = std::make_shared<Generation>(context_, std::move(exchange), api, std::move(request_id),
                                                 std::move(headers), std::move(*caller));
  if (context_->movable) fleet_->Watch(generation);
  Post(std::move(generation));
}

void ApiServerImpl::AnswerText(std::shared_ptr<http::Exchange> exchange, TextCall::Answer answer) {
  auto caller = Admit(exchange->request());
  if (!caller.ok()) return exchange->Respond(Error(exchange->request(), caller.status()));
  std::string request_id;
  http::Headers headers = CommonHeaders(exchange->request(), &request_id);
  Post(
      std::make_shared<TextCall>(context_, std::move(exchange), answer, std::move(headers), std::move(caller->places)));
}

void ApiServerImpl::AnswerEvents(std::shared_ptr<http::Exchange> exchange) {
  const http::HttpRequest& request = exchange->request();
  std::string request_id;
  http::Headers headers = CommonHeaders(request, &request_id);
  const std::string client = ClientOf(request, keys_.Find(request));
  const Status answered = viewers_.Answer(exchange, std::move(headers), client, OwnerOf(request));
  if (!answered.ok()) exchange->Respond(Error(request, answered));
}

void ApiServerImpl::Simulate(std::shared_ptr<http::Exchange> exchange, bool capacity) {
  std::string request_id;
  http::Headers headers = CommonHeaders(exchange->request(), &request_id);
  auto call = std::make_shared<StoredCall>(exchange, std::move(headers), clock_.NowNs(), options_.request_timeout.ns,
                                           [this, capacity](const http::Body& body, StopToken stop) {
                                             return simulations_.Answer(capacity, body.text(),
                                                                        [stop] { return stop.stopped(); });
                                           });
  active_.push_back(call);
  call->Watch();
  const std::string client = ClientOf(exchange->request(), keys_.Find(exchange->request()));
  if (const Status asked = simulations_.Ask(client, [call] { call->Run(); }); !asked.ok()) call->Fail(asked);
}

void ApiServerImpl::Post(std::shared_ptr<Call> call) {
  active_.push_back(call);
  call->Watch();
  const bool heavy = call->body_bytes() > kHeavyBodyBytes;
  pool_.Post([call = std::move(call)] { call->Run(); }, heavy);
}

void ApiServerImpl::OnTick(TimeNs now_ns) {
  const bool ending = ending_.load();
  std::erase_if(active_, [now_ns, ending](const std::weak_ptr<Call>& weak) {
    const auto call = weak.lock();
    if (call && ending) call->ShutDown();
    if (call) call->Tick(now_ns);
    return !call;
  });
  if (fleet_) fleet_->OnTick(now_ns);
}

std::string ApiServerImpl::HttpMetrics() const {
  results::PrometheusText t({});
  http::AppendServerMetrics(server_->Stats(), &t);
  t.Gauge("tactus_step_stuck", "1 while a step has no result for too long (--step-watchdog).", stuck_.load() ? 1 : 0);
  if (reports_ != nullptr && reports_->traces() != nullptr) reports_->traces()->AppendMetrics(&t);
  if (files_) files_->AppendMetrics(&t);
  if (fleet_) fleet_->AppendMetrics(&t);
  return t.Take();
}

}  // namespace

Status ApiServer::Check(const ServeOptions& options) {
  TACTUS_RETURN_IF_ERROR(http::CheckServingOptions(options));
  TACTUS_RETURN_IF_ERROR(FileApi::Check(options));
  TACTUS_RETURN_IF_ERROR(options.replica_tls.Context().status());
  if (options.hand_over_to.empty() || !options.kv_secret_file.empty()) return Status();
  return InvalidArgument("--hand-over-to needs the fleet's secret; give --kv-secret-file too", "hand-over-to");
}

Result<std::unique_ptr<ApiServer>> ApiServer::Listen(const ServeOptions& options, Clock& clock, Log log,
                                                     const http::RequestReports* reports) {
  TACTUS_RETURN_IF_ERROR(Check(options));
  std::optional<FleetKeys> fleet_keys;
  if (!options.kv_secret_file.empty()) {
    TACTUS_ASSIGN_OR_RETURN(const std::string secret, ReadFleetSecret(options.kv_secret_file));
    fleet_keys = FleetKeysOf(secret);
  }
  auto server = std::make_unique<ApiServerImpl>(options, clock, std::move(log), fleet_keys, reports);
  TACTUS_RETURN_IF_ERROR(server->Bind());
  return std::unique_ptr<ApiServer>(std::move(server));
}

}  // namespace tactus::serve
