#include "fleet/router/fleet_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/one_line.h"
#include "base/printable.h"
#include "fleet/balance/rebalance.h"
#include "http/access.h"

namespace tactus::fleet {
namespace {

constexpr int kFailedPolls = 3;              // in a row, until a replica counts as unreachable
constexpr DurationNs kSlowPollNs = kSecond;  // for unreachable replicas
constexpr DurationNs kLongestEjectionNs = 300 * kSecond;
constexpr DurationNs kTogetherNs = kSecond;  // replicas that become ready within this time start together
constexpr double kLeastShare = 0.1;          // share of requests of a replica that has just become ready
constexpr int64_t kUnknownFreeTokens = int64_t{1} << 40, kUnknownStepTokens = 2048;  // where not reported
constexpr int64_t kUnknownKvTokens = 1 << 18;  // capacity of the prefix index for a replica that reports none
constexpr int64_t kPollBytes = 4 << 20;
constexpr DurationNs kModelAgainNs = 10 * kSecond;
constexpr DurationNs kSameAgainNs = 10 * kSecond;  // between log lines about an unchanged state
constexpr double kMeanPromptTokens = 1024;         // of queued requests of vLLM, which reports only their number

constexpr const char* kStatePath = "/fleet/state";
constexpr const char* kMetricsPath = "/metrics";
constexpr const char* kHealthPath = "/health";
constexpr const char* kModelsPath = "/v1/models";

std::vector<double> DecisionBuckets() {
  return {1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 1e-3};
}

}  // namespace

struct FleetWatch::Replica {
  int32_t place = 0;
  int32_t number = -1;  // -1: the place is free
  std::string url, address;
  std::unique_ptr<http::Client> client;
  std::string path = kStatePath;  // the path of the next poll
  ReplicaKind kind = ReplicaKind::kUnknown;
  Said said = Said::kNothing;
  std::string why, model, version;
  std::vector<std::string> other_models;
  bool draining = false, lost = false, tells_memory = false;
  int failed_polls = 0;
  TimeNs heard_ns = 0, ready_since_ns = 0, ejected_until_ns = 0, model_asked_ns = 0, logged_ns = 0;
  bool slow_start = false;  // it became ready while others were ready
  double credit = 0;        // for slow start: 1 admits a request
  int64_t failures_in_row = 0, ejections_in_row = 0;
  int64_t waiting_requests = 0, routed_since_asked = 0;
  int64_t requests = 0, failures = 0, ejections = 0;
};

// The result of a poll, unless the watch has been destroyed.
struct FleetWatch::Reply final : http::ResponseHandler {
  FleetWatch* watch = nullptr;
  std::weak_ptr<bool> alive;
  int32_t replica = 0;
  void OnDone(const Status& status, const http::HttpResponse& response, TimeNs) override {
    if (!alive.lock()) return;
    try {
      watch->Answered(replica, status, response);
    } catch (const std::exception&) {  // as when memory is short: it is polled again
      watch->Schedule(replica, watch->options_.poll_interval.ns);
    }
  }
};

namespace {

// The URLs of --replicas, unchanged.
std::vector<std::string> NamedReplicas(const FleetOptions& options) {
  std::vector<std::string> urls;
  for (const std::string& list : options.replicas) {
    for (size_t at = 0; at <= list.size();) {
      const size_t end = std::min(list.find(',', at), list.size());
      if (end > at) urls.push_back(list.substr(at, end - at));
      at = end + 1;
    }
  }
  return urls;
}

struct ReplicaPlace {
  http::Url url;
  std::string address;  // HOST:PORT, in canonical form
};
Result<ReplicaPlace> PlaceOf(const std::string& given) {
  TACTUS_ASSIGN_OR_RETURN(const http::Url parsed, http::ParseUrl(given));
  if (parsed.path != "/") return InvalidArgument(fmt::format("'{}': use http://host:port, without a path", given));
  const bool v6 = parsed.host.find(':') != std::string::npos;
  return ReplicaPlace{parsed, fmt::format("{}{}{}:{}", v6 ? "[" : "", parsed.host, v6 ? "]" : "", parsed.port)};
}

Status NoReplica(const std::string& url) {
  return NotFound(fmt::format("'{}' is not a replica of this fleet; GET /fleet/replicas lists them", url));
}

}  // namespace

Status FleetWatch::Check(const FleetOptions& options) {
  for (const auto& [time, name] :
       {std::pair(options.poll_interval, "poll-interval"), std::pair(options.poll_timeout, "poll-timeout"),
        std::pair(options.dead_after, "dead-after")}) {
    if (time.ns < kMillisecond)
      return InvalidArgument(fmt::format("--{} is {}ns; give at least 1ms", name, time.ns), name);
  }
  TACTUS_RETURN_IF_ERROR(options.tls.Context().status());
  if (!options.replica_api_key.empty())
    TACTUS_RETURN_IF_ERROR(http::CheckKey("replica-api-key", options.replica_api_key));
  TACTUS_RETURN_IF_ERROR(Fleet::Create(0, options.balancer, static_cast<uint64_t>(options.seed)).status());
  for (const std::string& given : NamedReplicas(options)) {
    if (const auto place = PlaceOf(given); !place.ok())
      return InvalidArgument("--replicas: " + place.status().message(), "replicas");
  }
  return Status();
}

Result<std::unique_ptr<FleetWatch>> FleetWatch::Create(const FleetOptions& options, Clock& clock, http::Loop& loop,
                                                       Log log) {
  TACTUS_RETURN_IF_ERROR(Check(options));
  TACTUS_ASSIGN_OR_RETURN(auto fleet, Fleet::Create(0, options.balancer, static_cast<uint64_t>(options.seed)));
  TACTUS_ASSIGN_OR_RETURN(auto tls, options.tls.Context());
  std::unique_ptr<FleetWatch> watch(
      new FleetWatch(options, clock, loop, std::move(log), std::move(fleet), std::move(tls)));
  for (const std::string& url : NamedReplicas(options)) TACTUS_RETURN_IF_ERROR(watch->Add(url));
  return watch;
}

FleetWatch::FleetWatch(const FleetOptions& options, Clock& clock, http::Loop& loop, Log log,
                       std::unique_ptr<Fleet> fleet, std::shared_ptr<http::TlsContext> tls)
    : options_(options),
      clock_(clock),
      loop_(loop),
      log_(log ? std::move(log) : [](std::string_view) {}),
      tls_(std::move(tls)),
      fleet_(std::move(fleet)),
      model_(options.model),
      decision_s_(DecisionBuckets()) {}

FleetWatch::~FleetWatch() = default;

Status FleetWatch::Add(const std::string& given) {
  TACTUS_ASSIGN_OR_RETURN(const ReplicaPlace named, PlaceOf(given));
  const std::string url = (named.url.tls ? "https://" : "http://") + named.address;
  std::lock_guard lock(mutex_);
  if (Replica* known = FindLocked(url); known != nullptr) {
    known->draining = false;
    return Status();
  }
  auto place = std::find_if(replicas_.begin(), replicas_.end(), [](const auto& r) { return r->number < 0; });
  if (place == replicas_.end()) {
    auto added = std::make_unique<Replica>();
    added->place = fleet_->Add();
    replicas_.push_back(std::move(added));
    place = std::prev(replicas_.end());
  }
  const int32_t at = (*place)->place;
  **place = Replica();
  Replica& replica = **place;
  replica.place = at;
  replica.number = next_number_++;
  replica.url = url;
  replica.address = named.address;
  replica.heard_ns = clock_.NowNs();
  http::ClientOptions client;
  client.connect_timeout_ns = client.timeout_ns = options_.poll_timeout.ns;
  client.max_response_bytes = kPollBytes;
  client.tls = tls_;
  replica.client = std::make_unique<http::Client>(named.url, client, clock_, loop_);
  fleet_->Reset(at);
  fleet_->SetReady(at, false);
  Schedule(replica.number, 0);
  return Status();
}

Status FleetWatch::Remove(const std::string& url) {
  std::lock_guard lock(mutex_);
  Replica* replica = FindLocked(url);
  if (replica == nullptr) return NoReplica(url);
  log_(fmt::format("replica {}: removed", replica->url));
  const int32_t gone = replica->place;
  std::erase_if(picks_, [gone](const auto& entry) { return entry.second.place == gone; });
  *replica = Replica();
  replica->place = gone;
  fleet_->Reset(gone);
  fleet_->SetReady(gone, false);
  return Status();
}

Status FleetWatch::SetDraining(const std::string& url, bool draining) {
  std::lock_guard lock(mutex_);
  Replica* replica = FindLocked(url);
  if (replica == nullptr) return NoReplica(url);
  if (replica->draining != draining)
    log_(fmt::format("replica {}: {}", replica->url,
                     draining ? "receives no more requests (drained)" : "receives requests again"));
  replica->draining = draining;
  return Status();
}

FleetWatch::Replica* FleetWatch::FindLocked(const std::string& url) {
  for (const auto& replica : replicas_) {
    if (replica->number >= 0 && (replica->url == url || replica->url + "/" == url || replica->address == url))
      return replica.get();
  }
  return nullptr;
}

FleetWatch::Replica* FleetWatch::FindLocked(int32_t number) {
  for (const auto& replica : replicas_) {
    if (replica->number == number && number >= 0) return replica.get();
  }
  return nullptr;
}

bool FleetWatch::TakesLocked(const Replica& replica, TimeNs now_ns) const {
  return replica.number >= 0 && replica.said == Said::kReady && !replica.draining && now_ns >= replica.ejected_until_ns;
}

// Share of its normal requests that it gets.
double FleetWatch::ShareLocked(const Replica& replica, TimeNs now_ns) const {
  if (!replica.slow_start || options_.slow_start.ns <= 0) return 1;
  const auto age = static_cast<double>(now_ns - replica.ready_since_ns) / static_cast<double>(options_.slow_start.ns);
  return std::clamp(age, kLeastShare, 1.0);
}

std::optional<Picked> FleetWatch::Pick(const RouteRequest& request, std::span<const std::string> subset,
                                       std::span<const int32_t> excluded) {
  std::lock_guard lock(mutex_);
  const TimeNs start_ns = clock_.NowNs();
  const auto in_subset = [&](const Replica& r) {
    return subset.empty() || std::find(subset.begin(), subset.end(), r.address) != subset.end();
  };
  const auto may = [&](const Replica& r) {
    return in_subset(r) && std::find(excluded.begin(), excluded.end(), r.number) == excluded.end();
  };
  bool any = false, any_warm = false;
  for (const auto& r : replicas_) {
    if (!TakesLocked(*r, start_ns) || !may(*r)) continue;
    any = true;
    r->credit = std::min(1.0, r->credit + ShareLocked(*r, start_ns));
    any_warm |= r->credit >= 1;
  }
  for (const auto& r : replicas_) {
    // If no other is left, a failing replica is better than none.
    const bool takes = any ? TakesLocked(*r, start_ns) && (!any_warm || r->credit >= 1)
                           : r->number >= 0 && r->said == Said::kReady && !r->draining;
    fleet_->SetReady(r->place, takes && may(*r));
  }
  const int32_t chosen = fleet_->Route(request);
  decision_s_.Observe(static_cast<double>(clock_.NowNs() - start_ns) * 1e-9);
  if (chosen < 0) return std::nullopt;
  double& credit = replicas_[static_cast<size_t>(chosen)]->credit;
  credit = std::max(-1.0, credit - 1);  // requests that it got as the only replica are no debt
  return CountLocked(replicas_[static_cast<size_t>(chosen)].get(), request);
}

Picked FleetWatch::CountLocked(Replica* replica, const RouteRequest& request) {
  ++replica->requests;
  replica->routed_since_asked += request.prompt_tokens;
  const uint64_t pick = next_pick_++;
  picks_[pick] = {replica->place, request.prompt_tokens};
  return Picked{pick, replica->number, replica->url, replica->address};
}

std::optional<Picked> FleetWatch::Moved(const std::string& url, const RouteRequest& request) {
  std::lock_guard lock(mutex_);
  Replica* replica = FindLocked(url);
  if (replica == nullptr || replica->kind != ReplicaKind::kTactus) return std::nullopt;
  fleet_->Routed(replica->place, request);
  return CountLocked(replica, request);
}

void FleetWatch::Ended(uint64_t pick, int32_t output_tokens) {
  std::lock_guard lock(mutex_);
  const auto found = picks_.find(pick);
  if (found == picks_.end()) return;  // its replica was removed
  const OpenPick counted = found->second;
  picks_.erase(found);
  fleet_->Ended(counted.place, counted.prompt_tokens, output_tokens);
}

void FleetWatch::Failed(int32_t number) {
  std::lock_guard lock(mutex_);
  Replica* const found = FindLocked(number);
  if (found == nullptr) return;
  Replica& replica = *found;
  ++replica.failures;
  if (options_.eject_after == 0 || ++replica.failures_in_row < options_.eject_after) return;
  const TimeNs now_ns = clock_.NowNs();
  int64_t all = 0, ejected = 0;
  for (const auto& r : replicas_) {
    all += r->number >= 0;
    ejected += r->number >= 0 && now_ns < r->ejected_until_ns;
  }
  if (now_ns < replica.ejected_until_ns || 2 * (ejected + 1) > all) return;
  const int shift = static_cast<int>(std::min<int64_t>(replica.ejections_in_row++, 10));
  const DurationNs time_ns = std::min(options_.eject_time.ns << shift, kLongestEjectionNs);
  replica.ejected_until_ns = now_ns + time_ns;
  replica.failures_in_row = 0;
  ++replica.ejections;
  log_(fmt::format("replica {}: {} requests in a row failed; it receives none for {} ms", replica.url,
                   options_.eject_after, time_ns / kMillisecond));
}

void FleetWatch::Succeeded(int32_t number) {
  std::lock_guard lock(mutex_);
  Replica* const replica = FindLocked(number);
  if (replica == nullptr) return;
  replica->failures_in_row = 0;
  if (clock_.NowNs() >= replica->ejected_until_ns) replica->ejections_in_row = 0;
}

const char* FleetWatch::StateLocked(const Replica& r, TimeNs now_ns) const {
  if (r.draining) return "draining";
  if (r.failed_polls >= kFailedPolls) return "unreachable";
  if (r.said == Said::kNothing) return "starting";
  if (r.said == Said::kRefused) return "refused";
  if (r.said == Said::kNotReady) return "unready";
  return now_ns < r.ejected_until_ns ? "ejected" : "ready";
}

std::vector<Endpoint> FleetWatch::Endpoints() const {
  std::lock_guard lock(mutex_);
  const TimeNs now_ns = clock_.NowNs();
  std::vector<Endpoint> all;
  for (const auto& r : replicas_) {
    if (r->number < 0) continue;
    all.push_back({.replica = r->number,
                   .url = r->url,
                   .address = r->address,
                   .state = StateLocked(*r, now_ns),
                   .why = r->why,
                   .ready = TakesLocked(*r, now_ns),
                   .tells_memory = r->tells_memory,
                   .kind = r->kind,
                   .model = r->model,
                   .version = r->version,
                   .view = fleet_->view(r->place),
                   .waiting_requests = r->waiting_requests,
                   .requests = r->requests,
                   .failures = r->failures,
                   .ejections = r->ejections});
  }
  return all;
}

std::vector<FleetWatch::Move> FleetWatch::Moves() const {
  std::lock_guard lock(mutex_);
  const TimeNs now_ns = clock_.NowNs();
  std::vector<ReplicaView> views;
  std::vector<bool> draining;
  bool any_drains = false;
  for (const auto& r : replicas_) {
    const bool known = r->number >= 0 && r->said == Said::kReady && r->kind == ReplicaKind::kTactus;
    views.push_back(known ? fleet_->view(r->place) : ReplicaView());
    views.back().ready = known && TakesLocked(*r, now_ns);
    if (!known) views.back().running = 0;
    draining.push_back(known && r->draining);
    any_drains |= draining.back();
  }
  if (!any_drains && !fleet_->moves_sequences()) return {};
  std::vector<Move> moves;
  for (const MovePair& pair : PairReplicas(views, draining)) {
    const bool all = draining[static_cast<size_t>(pair.from)];
    if (!all && !fleet_->moves_sequences()) continue;
    moves.push_back(
        {replicas_[static_cast<size_t>(pair.from)]->url, replicas_[static_cast<size_t>(pair.to)]->url, all});
  }
  return moves;
}

int64_t FleetWatch::ready() const {
  std::lock_guard lock(mutex_);
  const TimeNs now_ns = clock_.NowNs();
  return std::count_if(replicas_.begin(), replicas_.end(), [&](const auto& r) { return TakesLocked(*r, now_ns); });
}

int64_t FleetWatch::size() const {
  std::lock_guard lock(mutex_);
  return std::count_if(replicas_.begin(), replicas_.end(), [](const auto& r) { return r->number >= 0; });
}

std::string FleetWatch::model() const {
  std::lock_guard lock(mutex_);
  return model_;
}

void FleetWatch::Schedule(int32_t number, DurationNs after_ns) {
  loop_.After(after_ns, [this, alive = std::weak_ptr<bool>(alive_), number] {
    if (alive.lock()) Poll(number);
  });
}

void FleetWatch::Poll(int32_t number) {
  std::lock_guard lock(mutex_);
  Replica* const replica = FindLocked(number);
  if (replica == nullptr) return;
  auto reply = std::make_shared<Reply>();
  reply->watch = this;
  reply->alive = alive_;
  reply->replica = number;
  replica->routed_since_asked = 0;
  http::ClientRequest request;
  request.method = "GET";
  request.path = replica->path;
  if (!options_.replica_api_key.empty())
    request.headers.emplace_back("Authorization", "Bearer " + options_.replica_api_key);
  try {
    replica->client->Send(std::move(request), std::move(reply));
  } catch (const std::exception&) {  // as when memory is short
    Schedule(number, options_.poll_interval.ns);
  }
}

void FleetWatch::Answered(int32_t number, const Status& status, const http::HttpResponse& response) {
  bool lost = false;
  DurationNs after_ns = options_.poll_interval.ns;
  {
    std::lock_guard lock(mutex_);
    Replica* const replica = FindLocked(number);
    if (replica == nullptr) return;
    const TimeNs now_ns = clock_.NowNs();
    if (status.ok()) {
      replica->heard_ns = now_ns;  // any response shows that it is alive
      try {
        after_ns = ReadLocked(replica, response);
      } catch (const std::exception& e) {
        NotHeardLocked(replica, fmt::format("{} cannot be read: {}", replica->path, e.what()));
      }
    } else if (status.code() == StatusCode::kResourceExhausted) {  // this is no fault of the replica
      if (now_ns - std::exchange(replica->logged_ns, now_ns) >= kSameAgainNs)
        log_(fmt::format("warning: replica {} cannot be polled: {}", replica->url, status.message()));
    } else {
      NotHeardLocked(replica, status.message());
      if (replica->failed_polls >= kFailedPolls) after_ns = std::max(after_ns, std::min(kSlowPollNs, 10 * after_ns));
    }
    lost = now_ns - replica->heard_ns >= options_.dead_after.ns;
    if (lost && !replica->lost)
      log_(fmt::format("replica {}: no response for {} ms", replica->url, options_.dead_after.ns / kMillisecond));
    replica->lost = lost;
  }
  if (lost && lost_) lost_(number);
  Schedule(number, after_ns);
}

// Determines the kind of server, from the most informative protocol to the least; afterwards reads its report. Returns
// the time until the next poll.
DurationNs FleetWatch::ReadLocked(Replica* r, const http::HttpResponse& response) {
  const DurationNs interval_ns = options_.poll_interval.ns;
  const bool ok = response.status == 200;
  if (r->path == kStatePath) {
    auto report = ParseTactusState(response.body);
    if (report.ok() && (ok || response.status == 503)) {
      r->kind = ReplicaKind::kTactus;
      HeardLocked(r, std::move(*report));
      return interval_ns;
    }
    if (r->kind == ReplicaKind::kTactus || (ok && response.content_type.find("json") != std::string::npos)) {
      NotHeardLocked(r, ok ? report.status().message() : fmt::format("{} returns {}", kStatePath, response.status));
      return interval_ns;
    }
    r->path = kMetricsPath;
    return 0;
  }
  if (r->path == kMetricsPath) {
    auto report = ParseVllmMetrics(response.body, kMeanPromptTokens);
    if (!ok || !report.ok()) {
      if (r->kind == ReplicaKind::kVllm) {
        NotHeardLocked(r, ok ? report.status().message() : fmt::format("{} returns {}", kMetricsPath, response.status));
        return interval_ns;
      }
      r->path = kHealthPath;
      return 0;
    }
    r->kind = ReplicaKind::kVllm;
    if (ModelIsOldLocked(*r)) {
      r->path = kModelsPath;
      return 0;
    }
    report->model = r->model;
    report->other_models = r->other_models;
    HeardLocked(r, std::move(*report));
    return interval_ns;
  }
  if (r->path == kModelsPath) {
    auto models = ParseModelNames(response.body);
    if (!ok || !models.ok()) {
      NotHeardLocked(r, ok ? models.status().message() : fmt::format("{} returns {}", kModelsPath, response.status));
      r->path = r->kind == ReplicaKind::kVllm ? kMetricsPath : kStatePath;
      return interval_ns;
    }
    r->model = models->front();
    r->other_models.assign(models->begin() + 1, models->end());
    r->model_asked_ns = r->heard_ns;
    if (r->kind != ReplicaKind::kVllm) r->kind = ReplicaKind::kPlain;
    r->path = r->kind == ReplicaKind::kVllm ? kMetricsPath : kHealthPath;
    return 0;
  }
  // Not every server has /health: one that lists its models is alive.
  const bool there = ok || response.status == 404 || response.status == 405;
  if (there && (r->kind == ReplicaKind::kUnknown || ModelIsOldLocked(*r))) {
    r->path = kModelsPath;
    return 0;
  }
  if (!there) {
    NotHeardLocked(r, fmt::format("{} returns {}", kHealthPath, response.status));
    return interval_ns;
  }
  ReplicaReport report;
  report.model = r->model;
  report.other_models = r->other_models;
  HeardLocked(r, std::move(report));
  return interval_ns;
}

// For servers that do not report their model with their state: another server may use this address by now.
bool FleetWatch::ModelIsOldLocked(const Replica& r) const {
  return r.model.empty() || r.heard_ns - r.model_asked_ns >= kModelAgainNs;
}

void FleetWatch::HeardLocked(Replica* r, ReplicaReport report) {
  r->failed_polls = 0;
  r->version = report.version;
  if (!report.ready) return ChangedLocked(r, Said::kNotReady, report.why);
  r->model = report.model;
  r->other_models = std::move(report.other_models);
  if (model_.empty()) model_ = report.model;
  if (report.model != model_ && std::ranges::find(r->other_models, model_) == r->other_models.end()) {
    return ChangedLocked(r, Said::kRefused,
                         fmt::format("it serves '{}', but this fleet serves '{}' (--model)", Printable(report.model),
                                     Printable(model_)));
  }
  r->waiting_requests = report.waiting_requests;
  TellLocked(r, report.state);
  ChangedLocked(r, Said::kReady, "");
}

void FleetWatch::TellLocked(Replica* r, const ReplicaState& said) {
  ReplicaState state = said;
  r->tells_memory = state.kv_tokens > 0;
  if (!r->tells_memory) {  // only its own requests are known
    const ReplicaView& view = fleet_->view(r->place);
    if (r->kind == ReplicaKind::kPlain) {
      state.running = view.outstanding_requests;
      state.waiting_tokens = view.outstanding_tokens;
    }
    state.free_kv_tokens = kUnknownFreeTokens;
    state.kv_tokens = kUnknownKvTokens;
    if (state.step_tokens == 0) state.step_tokens = kUnknownStepTokens;
  }
  const bool counted = r->kind == ReplicaKind::kPlain;  // requests routed since then are included
  fleet_->Told(r->place, state, counted ? 0 : r->routed_since_asked);
}

void FleetWatch::NotHeardLocked(Replica* r, const std::string& why) {
  if (++r->failed_polls < kFailedPolls) return;
  r->path = kStatePath;  // the next server at this address may be of another kind
  r->kind = ReplicaKind::kUnknown;
  r->model.clear();
  ChangedLocked(r, Said::kNothing, OneLine(why));
}

void FleetWatch::ChangedLocked(Replica* r, Said said, const std::string& why) {
  if (r->said == said && r->why == why) return;
  const bool same = r->said == said;
  const bool others = std::any_of(replicas_.begin(), replicas_.end(), [r](const auto& other) {
    return other.get() != r && other->number >= 0 && other->said == Said::kReady &&
           r->heard_ns - other->ready_since_ns >= kTogetherNs;
  });
  r->said = said;
  r->why = why;
  if (same && r->heard_ns - r->logged_ns < kSameAgainNs) return;
  r->logged_ns = r->heard_ns;
  if (said == Said::kReady && !same) {
    r->slow_start = others;
    r->credit = 0;
    r->ready_since_ns = r->heard_ns;
    r->failures_in_row = 0;
    log_(fmt::format("replica {}: ready ({}{}{})", r->url, NameOf(r->kind), r->model.empty() ? "" : ", ",
                     Printable(r->model)));
  } else if (said == Said::kNotReady) {
    log_(fmt::format("replica {}: {}", r->url, why));
  } else if (said == Said::kRefused) {
    log_(fmt::format("warning: replica {} receives no requests: {}", r->url, why));
  } else if (!same || said == Said::kNothing) {
    log_(fmt::format("warning: replica {}: {}", r->url, why));
  }
}

}  // namespace tactus::fleet
