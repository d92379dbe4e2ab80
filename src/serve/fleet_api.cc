#include "serve/fleet_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/chat/response_text.h"
#include "base/json.h"
#include "base/on_exit.h"
#include "base/printable.h"
#include "http/access.h"
#include "serve/moves/migration_text.h"

namespace tactus::serve {
namespace {

constexpr int kThreads = 4;                               // sequences that move away at the same time
constexpr size_t kMostIncoming = 1024;                    // sequences that arrive, or wait for their routers
constexpr int64_t kMostWaitingBytes = int64_t{64} << 20;  // bytes of answers that wait for their routers
constexpr int64_t kMostBlocks = int64_t{1} << 24;
constexpr int kMostFailures = 3;  // consecutive failures after which a command stops
constexpr DurationNs kLatelyNs = 60 * kSecond;
constexpr int64_t kCommandBytes = 64 << 10;  // limit of bodies other than imports
constexpr int64_t kHeadBytes = 64 << 10;     // head of a message with KV
constexpr int64_t kMostAhead = 4096;         // most blocks reserved in advance, as the source expects
constexpr int64_t kAheadPart = 8;            // and at most an eighth of the host's blocks
constexpr int kImportThreads = 2;            // separate threads, which never wait for another replica

Status CheckUrl(const std::string& url, const char* param) {
  const auto parsed = http::ParseUrl(url);
  return parsed.ok() ? Status() : InvalidArgument(parsed.status().message(), param);
}

}  // namespace

Result<std::unique_ptr<FleetApi>> FleetApi::Make(const ServeOptions& options, const FleetKeys& keys, Clock& clock,
                                                 Log log) {
  if (!options.hand_over_to.empty()) TACTUS_RETURN_IF_ERROR(CheckUrl(options.hand_over_to, "hand-over-to"));
  TACTUS_ASSIGN_OR_RETURN(auto tls, options.replica_tls.Context());
  return std::unique_ptr<FleetApi>(new FleetApi(options, keys, std::move(tls), clock, std::move(log)));
}

FleetApi::FleetApi(const ServeOptions& options, const FleetKeys& keys, std::shared_ptr<http::TlsContext> tls,
                   Clock& clock, Log log)
    : keys_(keys),
      tls_(std::move(tls)),
      clock_(clock),
      log_(std::move(log)),
      timeout_ns_(options.migration_timeout.ns),
      ticket_timeout_ns_(options.ticket_timeout.ns),
      hand_over_to_(options.hand_over_to),
      guard_(keys, UnixSeconds()),
      pool_(kThreads, "tactus-fleet"),
      import_pool_(kImportThreads, "tactus-import") {}

void FleetApi::Start(Engine* engine, std::shared_ptr<GenerationContext> context, http::ClientCounts* clients,
                     const BodyLimits& bodies) {
  engine_ = engine;
  port_ = engine->migration();
  clients_ = clients;
  context->movable = port_ != nullptr;
  max_import_bytes_ = bodies.max_body_bytes;
  if (port_ != nullptr) {
    // The sender is a member, and a message has at least one block.
    const int64_t message = std::max(kMessageBytes, port_->format().block_bytes) + kHeadBytes;
    max_import_bytes_ = std::max(max_import_bytes_, message);
    if (message > bodies.max_body_total_bytes) {
      log_(
          fmt::format("warning: no sequence can move here from another replica: a message has {} bytes, since a block "
                      "of KV has {}, and all bodies together may have {} (--max-body-total)",
                      message, port_->format().block_bytes, bodies.max_body_total_bytes));
    }
  }
  if (port_ != nullptr && !hand_over_to_.empty()) {
    gate_->api = this;
    context->on_first_token = [gate = gate_](std::shared_ptr<Generation> generation) {
      std::lock_guard lock(gate->mutex);
      if (FleetApi* api = gate->api; api != nullptr)
        api->pool_.Post([api, generation = std::move(generation)] { api->HandOver(generation); });
    };
  }
  std::lock_guard lock(mutex_);
  context_ = std::move(context);
}

void FleetApi::Stop() {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
  }
  {
    std::lock_guard lock(gate_->mutex);
    gate_->api = nullptr;
  }
  pool_.Stop();
  import_pool_.Stop();
  std::map<std::string, Ticket> tickets;
  std::map<std::string, Incoming> incoming;
  {
    std::lock_guard lock(mutex_);
    tickets.swap(tickets_);
    incoming.swap(incoming_);
  }
  for (auto& [id, ticket] : tickets) ticket.exchange->GiveUp();
  for (auto& [id, in] : incoming) {
    if (in.ticket.empty() && port_ != nullptr) port_->DropReservation(in.reservation);
  }
}

Status FleetApi::CheckHead(const http::HttpRequest& head) {
  return guard_.CheckHead(head.method, head.path, head.Find(kFleetHeader), UnixSeconds());
}

std::optional<http::BodyLimit> FleetApi::LimitOf(Route route) const {
  if (route == Route::kFleetImport) return http::BodyLimit{max_import_bytes_, "--max-body"};
  return http::BodyLimit{kCommandBytes, "the limit of this route"};
}

Result<http::HttpResponse> FleetApi::Answer(Route route, const http::HttpRequest& request, std::string_view body) {
  TACTUS_ASSIGN_OR_RETURN(const Hash128 nonce, guard_.CheckBody(request.Find(kFleetHeader), body));
  if (port_ == nullptr) return Status(StatusCode::kUnimplemented, "the sequences of this replica's engine do not move");
  TACTUS_ASSIGN_OR_RETURN(const Json json, route == Route::kFleetImport ? Take(body) : Migrate(body));
  http::HttpResponse response;
  response.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  response.headers.emplace_back(kFleetHeader, SignFleetAnswer(keys_, nonce, response.status, response.body));
  return response;
}

Result<Json> FleetApi::Take(std::string_view body) {
  TACTUS_ASSIGN_OR_RETURN(const Message message, ReadMessage(body));
  TACTUS_ASSIGN_OR_RETURN(const std::string kind, TextMember(message.head, "kind"));
  if (kind == "begin") return TakeBegin(message.head);
  if (kind == "blocks") return TakeBlocks(message);
  if (kind == "finish") return TakeFinish(message);
  if (kind == "drop") return TakeDrop(message.head);
  return InvalidArgument(fmt::format("kind '{}' is unknown; known: begin, blocks, finish, drop", Printable(kind)),
                         "kind");
}

Result<Json> FleetApi::TakeBegin(const Json& head) {
  TACTUS_ASSIGN_OR_RETURN(const int64_t version, NumberMember(head, "version", 0, 1 << 30));
  if (version != kMigrationVersion) {
    return InvalidArgument(
        fmt::format("version: here {}, there {}; give all replicas the same program", kMigrationVersion, version),
        "version");
  }
  TACTUS_ASSIGN_OR_RETURN(const MigrationFormat format, FormatOf(head));
  TACTUS_RETURN_IF_ERROR(CheckSameFormat(port_->format(), format));
  TACTUS_ASSIGN_OR_RETURN(const int64_t blocks, NumberMember(head, "blocks", 0, kMostBlocks));
  const std::string id = http::RandomId();
  std::lock_guard lock(mutex_);
  if (stopped_) return Status(StatusCode::kUnavailable, "the server is shutting down; try another one");
  if (incoming_.size() >= kMostIncoming || tickets_.size() >= kMostIncoming) {
    const char* what = tickets_.size() >= kMostIncoming ? "wait for their routers" : "are arriving";
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("{} sequences {}, the limit; try another replica", kMostIncoming, what));
  }
  Incoming& in = incoming_[id];
  in.heard_ns = clock_.NowNs();
  in.expected_blocks = static_cast<int32_t>(blocks);
  return Json{{"import", id}};
}

Result<FleetApi::Incoming> FleetApi::Enter(const Json& head, std::string* id) {
  TACTUS_ASSIGN_OR_RETURN(*id, TextMember(head, "import"));
  std::lock_guard lock(mutex_);
  const auto found = incoming_.find(*id);
  if (found == incoming_.end() || !found->second.ticket.empty())
    return NotFound("no such import: it ended, or its next message came too late", "import");
  if (found->second.busy) return InvalidArgument("another message of this import is being processed", "import");
  found->second.busy = true;
  return found->second;
}

void FleetApi::Leave(const std::string& id, Incoming* state) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = incoming_.find(id);
  if (found == incoming_.end()) return;
  found->second = std::move(*state);
  found->second.busy = false;
  found->second.heard_ns = clock_.NowNs();
}

Status FleetApi::CheckBlocks(const Incoming& in, int64_t first, int64_t count, std::string_view bytes) const {
  if (first > in.written) {
    return InvalidArgument(
        fmt::format("first_block is {}, and the blocks before it from {} on have not arrived; send them in order",
                    first, in.written),
        "first_block");
  }
  const int64_t announced = count * port_->format().block_bytes;
  if (static_cast<int64_t>(bytes.size()) == announced) return Status();
  return InvalidArgument(fmt::format("blocks: {} of {} bytes are announced, {} bytes arrived", count,
                                     port_->format().block_bytes, bytes.size()),
                         "blocks");
}

Result<Json> FleetApi::TakeBlocks(const Message& message) {
  std::string id;
  TACTUS_ASSIGN_OR_RETURN(const int64_t first, NumberMember(message.head, "first_block", 0, kMostBlocks));
  TACTUS_ASSIGN_OR_RETURN(const int64_t count, NumberMember(message.head, "blocks", 1, kMostBlocks));
  TACTUS_ASSIGN_OR_RETURN(Incoming in, Enter(message.head, &id));
  const OnExit leave([&] { Leave(id, &in); });
  TACTUS_RETURN_IF_ERROR(CheckBlocks(in, first, count, message.bytes));  // before memory is reserved
  if (first + count > in.blocks) {
    // Reserves many blocks at once, because each reservation waits for the steps in flight. The source's expectation
    // gets at most a part of the memory, so that one source cannot claim all of it.
    const int64_t ahead = std::min(kMostAhead, std::max<int64_t>(1, engine_->Stats().swap_blocks_total / kAheadPart));
    const int64_t more = std::max(first + count, std::min<int64_t>(in.expected_blocks, in.blocks + ahead)) - in.blocks;
    TACTUS_ASSIGN_OR_RETURN(in.reservation, port_->Reserve(in.reservation, static_cast<int32_t>(more), timeout_ns_));
    in.blocks += static_cast<int32_t>(more);
  }
  TACTUS_RETURN_IF_ERROR(port_->Write(in.reservation, static_cast<int32_t>(first), message.bytes));
  in.written = std::max(in.written, static_cast<int32_t>(first + count));
  return Json{{"blocks", in.blocks}};
}

Result<Json> FleetApi::TakeFinish(const Message& message) {
  std::string id;
  const auto found = message.head.find("sequence");
  if (found == message.head.end()) return InvalidArgument("sequence: missing", "sequence");
  TACTUS_ASSIGN_OR_RETURN(MovingSequence sequence, SequenceOf(*found));
  TACTUS_ASSIGN_OR_RETURN(const std::string request_id, TextMember(message.head, "request_id"));
  TACTUS_ASSIGN_OR_RETURN(const int64_t created, NumberMember(message.head, "created", 1, int64_t{1} << 50));
  if (!http::ValidRequestId(request_id)) return InvalidArgument("request_id: not valid in a header", "request_id");
  Caller caller;
  TACTUS_ASSIGN_OR_RETURN(caller.client, TextMember(message.head, "client"));
  TACTUS_ASSIGN_OR_RETURN(caller.owner, TextMember(message.head, "owner"));
  TACTUS_ASSIGN_OR_RETURN(caller.places, clients_->Enter(caller.client));
  TACTUS_ASSIGN_OR_RETURN(const std::string api_name, TextMember(message.head, "api"));
  const api::Api* api = api::FindApi(api_name);
  if (api == nullptr) return InvalidArgument("api: unknown", "api");
  http::HttpRequest request;
  request.method = "POST";
  request.path = request.target = api->path;
  request.headers.emplace_back("x-tactus-route", "1");
  if (message.head.value("explained", Json(false)) == Json(true)) request.headers.emplace_back("x-tactus-explain", "1");
  TACTUS_ASSIGN_OR_RETURN(Incoming in, Enter(message.head, &id));
  const OnExit leave([&] { Leave(id, &in); });
  // The arrival uses the reservation; a sequence without KV needs none.
  if (sequence.computed_tokens == 0 && in.reservation != 0) {
    port_->DropReservation(std::exchange(in.reservation, 0));
    in.blocks = in.written = 0;
  }
  // Blocks that were not written have stale contents.
  const int64_t needed =
      (int64_t{sequence.computed_tokens} + port_->format().block_size - 1) / port_->format().block_size;
  if (needed > in.written) {
    return InvalidArgument(
        fmt::format("computed_tokens: {} fill {} blocks of {}, and {} arrived; send the others first",
                    sequence.computed_tokens, needed, port_->format().block_size, in.written),
        "computed_tokens");
  }
  auto exchange = std::make_shared<DetachedExchange>(std::move(request), message.bytes);
  const TimeNs arrival_ns = clock_.NowNs() - std::clamp<int64_t>(sequence.age_ns, 0, clock_.NowNs());
  auto generation =
      std::make_shared<Generation>(context_, exchange, *api, request_id, http::Headers{{"X-Request-Id", request_id}},
                                   std::move(caller), created, arrival_ns);
  generation->Watch();
  OnExit end([&] { generation->ShutDown(); });
  TACTUS_RETURN_IF_ERROR(generation->ContinueSequence(*port_, in.reservation, std::move(sequence)));
  in.ticket = http::RandomId();
  {
    std::lock_guard lock(mutex_);
    arrived_.push_back(generation);
    watched_.push_back(generation);
    tickets_[in.ticket] = {exchange, clock_.NowNs() + ticket_timeout_ns_};
    ++moved_in_;
  }
  end.Cancel();
  return Json{{"ticket", in.ticket}};
}

Result<Json> FleetApi::TakeDrop(const Json& head) {
  TACTUS_ASSIGN_OR_RETURN(const std::string id, TextMember(head, "import"));
  Incoming gone;
  std::shared_ptr<DetachedExchange> exchange;
  {
    std::lock_guard lock(mutex_);
    const auto found = incoming_.find(id);
    if (found == incoming_.end() || found->second.busy) return Json::object();
    gone = found->second;
    incoming_.erase(found);
    if (const auto ticket = tickets_.find(gone.ticket); ticket != tickets_.end()) {
      exchange = ticket->second.exchange;
      tickets_.erase(ticket);
    }
  }
  if (exchange) exchange->GiveUp();
  if (gone.ticket.empty()) port_->DropReservation(gone.reservation);
  return Json::object();
}

void FleetApi::Attach(std::shared_ptr<http::Exchange> exchange, const std::string& ticket,
                      const http::Headers& headers) {
  const auto refuse = [&](const Status& why) {
    http::HttpResponse response;
    response.status = api::HttpStatusOf(why.code());
    response.headers = headers;
    response.body = api::ErrorText(why);
    exchange->Respond(std::move(response));
  };
  const http::HttpRequest& request = exchange->request();
  const http::Body body = exchange->TakeBody();
  const auto member = guard_.CheckBody(request.Find(kFleetHeader), body.text());
  if (!member.ok()) return refuse(member.status());
  std::shared_ptr<DetachedExchange> waiting;
  {
    std::lock_guard lock(mutex_);
    const auto found = tickets_.find(ticket);
    if (found != tickets_.end()) {
      waiting = found->second.exchange;
      tickets_.erase(found);
      std::erase_if(incoming_, [&](const auto& entry) { return entry.second.ticket == ticket; });
    }
  }
  if (!waiting || !waiting->Attach(exchange))
    return refuse(NotFound("no such ticket: it was used, or has expired", "ticket"));
}

void FleetApi::Watch(const std::shared_ptr<Generation>& generation) {
  std::lock_guard lock(mutex_);
  watched_.push_back(generation);
}

std::vector<std::shared_ptr<DetachedExchange>> FleetApi::TakeLateTickets(TimeNs now_ns) {
  std::vector<std::pair<TimeNs, std::string>> oldest;
  int64_t waiting = 0;
  for (const auto& [id, ticket] : tickets_) {
    oldest.emplace_back(ticket.until_ns, id);
    waiting += ticket.exchange->unsent();
  }
  std::sort(oldest.begin(), oldest.end());
  std::vector<std::shared_ptr<DetachedExchange>> late;
  for (const auto& [until_ns, id] : oldest) {
    if (now_ns < until_ns && waiting <= kMostWaitingBytes) break;
    const auto found = tickets_.find(id);
    waiting -= found->second.exchange->unsent();
    late.push_back(std::move(found->second.exchange));
    tickets_.erase(found);
    ++tickets_expired_;
  }
  return late;
}

void FleetApi::OnTick(TimeNs now_ns) {
  std::vector<std::shared_ptr<DetachedExchange>> late;
  std::vector<uint64_t> reservations;
  std::vector<std::shared_ptr<Call>> calls;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(watched_, [](const auto& weak) { return weak.expired(); });
    std::erase_if(arrived_, [&](const auto& weak) {
      auto call = weak.lock();
      const bool gone = !call;
      if (call) calls.push_back(std::move(call));
      return gone;
    });
    late = TakeLateTickets(now_ns);
    std::erase_if(incoming_, [&](const auto& entry) {
      const Incoming& in = entry.second;
      if (in.busy || now_ns - in.heard_ns < timeout_ns_) return false;
      if (in.ticket.empty()) reservations.push_back(in.reservation);
      return true;
    });
  }
  for (const auto& call : calls) call->Tick(now_ns);
  for (const auto& exchange : late) exchange->GiveUp();
  for (const uint64_t reservation : reservations) port_->DropReservation(reservation);
}

std::vector<std::shared_ptr<Generation>> FleetApi::Choose(const std::string& request_id, int64_t count,
                                                          Status* why_not) {
  std::vector<std::shared_ptr<Generation>> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& weak : watched_) {
      if (auto generation = weak.lock()) all.push_back(std::move(generation));
    }
  }
  std::erase_if(all, [&](const auto& g) {
    if (g->over() || (!request_id.empty() && g->request_id() != request_id)) return true;
    const Status movable = g->MovableHandle(timeout_ns_).status();
    if (!movable.ok()) *why_not = movable;
    return !movable.ok();
  });
  // As in Llumnix: the lowest priority first, and among those the shortest, which cost least. Requests with a recent
  // failed move come last, so that they do not delay others.
  struct Rank {
    bool failed = false;
    Generation::Extent extent;
    std::shared_ptr<Generation> generation;
  };
  const TimeNs now_ns = clock_.NowNs();
  std::vector<Rank> ranked;
  for (auto& g : all) {
    const TimeNs failed_ns = g->move_failed_ns();
    ranked.push_back({failed_ns != 0 && now_ns - failed_ns < kLatelyNs, g->extent(), std::move(g)});
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const Rank& a, const Rank& b) {
    if (a.failed != b.failed) return b.failed;
    if (a.extent.priority != b.extent.priority) return a.extent.priority > b.extent.priority;
    return a.extent.tokens < b.extent.tokens;
  });
  all.clear();
  for (Rank& rank : ranked) {
    if (static_cast<int64_t>(all.size()) < count) all.push_back(std::move(rank.generation));
  }
  return all;
}

Result<Json> FleetApi::Migrate(std::string_view body) {
  TACTUS_ASSIGN_OR_RETURN(const Json head, json_text::ParseJson(body));
  TACTUS_ASSIGN_OR_RETURN(const std::string to, TextMember(head, "to"));
  TACTUS_RETURN_IF_ERROR(CheckUrl(to, "to"));
  std::string request_id;
  int64_t count = 1;
  if (head.contains("request_id")) {
    TACTUS_ASSIGN_OR_RETURN(request_id, TextMember(head, "request_id"));
  } else if (head.contains("count")) {
    TACTUS_ASSIGN_OR_RETURN(count, NumberMember(head, "count", 1, 1 << 20));
  } else if (head.value("all", Json(false)) == Json(true)) {
    count = 1 << 20;
  } else {
    return InvalidArgument("give request_id, count, or all: true", "count");
  }
  const bool after_prefill = head.value("after", Json("")) == Json("prefill");
  Status why_not = NotFound("it does not run here");
  const auto chosen = Choose(request_id, count, &why_not);
  if (!request_id.empty() && chosen.empty()) {
    return NotFound(
        fmt::format("no request '{}' runs here that may move: {}", Printable(request_id), why_not.message()),
        "request_id");
  }
  Json moved = Json::array(), failed = Json::array();
  int failures = 0;  // consecutive
  for (const auto& generation : chosen) {
    if (after_prefill) generation->WaitForToken(timeout_ns_);
    Moved how;
    const Status status = MoveOne(*generation, to, &how);
    if (status.ok()) {
      failures = 0;
      moved.push_back({{"request_id", generation->request_id()},
                       {"ticket", how.ticket},
                       {"blocks", how.blocks},
                       {"bytes", how.bytes},
                       {"rounds", how.rounds},
                       {"paused_ms", static_cast<double>(how.paused_ns) * 1e-6}});
      continue;
    }
    failed.push_back({{"request_id", generation->request_id()}, {"why", status.message()}});
    const bool hopeless = status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kUnauthenticated ||
                          status.code() == StatusCode::kDeadlineExceeded;
    if (hopeless) break;  // the next one would fail in the same way
    if (!generation->over() && ++failures == kMostFailures) break;
  }
  return Json{{"moved", moved}, {"failed", failed}};
}

Status FleetApi::MoveOne(Generation& generation, const std::string& to, Moved* moved) {
  TACTUS_ASSIGN_OR_RETURN(http::Url url, http::ParseUrl(to));
  FleetPeer peer(to, std::move(url), keys_, tls_, timeout_ns_, clock_);
  auto done = MoveAway(generation, *port_, peer, timeout_ns_, clock_);
  std::lock_guard lock(mutex_);
  if (!done.ok()) {
    ++failed_out_;
    generation.MoveFailed(clock_.NowNs());
    return done.status();
  }
  ++moved_out_;
  bytes_out_ += done->bytes;
  *moved = *done;
  return Status();
}

void FleetApi::HandOver(const std::shared_ptr<Generation>& generation) {
  Moved moved;
  const Status status = MoveOne(*generation, hand_over_to_, &moved);
  if (!status.ok() && status.code() != StatusCode::kNotFound) {
    log_(fmt::format("warning: --hand-over-to: request {} stays here: {}", generation->request_id(), status.message()));
  }
}

void FleetApi::AppendMetrics(results::PrometheusText* t) const {
  std::lock_guard lock(mutex_);
  const auto value = [](auto count) { return static_cast<double>(count); };
  t->Family("tactus_fleet_migrations_total", results::PrometheusText::Type::kCounter,
            "Requests that moved to another replica (out), whose move failed (failed), or that came from one (in).");
  t->Sample(value(moved_out_), {{"what", "out"}});
  t->Sample(value(failed_out_), {{"what", "failed"}});
  t->Sample(value(moved_in_), {{"what", "in"}});
  const auto coming =
      std::count_if(incoming_.begin(), incoming_.end(), [](const auto& i) { return i.second.ticket.empty(); });
  t->Gauge("tactus_fleet_imports", "Sequences that are arriving, or whose answers no router has requested yet.",
           value(static_cast<int64_t>(tickets_.size()) + coming));
  t->Counter("tactus_fleet_sent_kv_bytes_total", "KV bytes sent to other replicas.", value(bytes_out_));
  t->Gauge("tactus_fleet_kept_body_bytes", "Bytes of bodies kept for running requests that may move.",
           context_ ? value(context_->kept_bodies->held()) : 0);
  t->Counter("tactus_fleet_tickets_expired_total", "Moved requests whose answers no router requested in time.",
             value(tickets_expired_));
}

}  // namespace tactus::serve
