// The requests of fleet members to a server (docs/concepts/migration.md): send sequences to another replica, receive
// sequences from one, continue a client's stream. Every request is signed with the fleet's secret
// (base/fleet_secret.h).
//
// An arriving sequence is an Incoming from its first message to its ticket: host blocks that are filled. A late message
// ends it. With the ticket the router requests the sequence's answer. A request is cancelled if its ticket expires, or
// if the waiting answers together are too long and its ticket is the oldest.
//
// Thread rule: Attach and OnTick on the io thread, Watch and Answer on any; one mutex, which is not held during calls
// of the engine and of other replicas.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fleet_secret.h"
#include "base/json_text.h"
#include "base/worker_pool.h"
#include "http/client_counts.h"
#include "http/server.h"
#include "results/obs/prometheus_text.h"
#include "serve/calls/generation.h"
#include "serve/moves/detached_exchange.h"
#include "serve/moves/outgoing.h"
#include "serve/routes.h"
#include "serve/serve_options.h"

namespace tactus::serve {

struct Message;  // serve/moves/migration_text.h

class FleetApi {
 public:
  using Log = std::function<void(std::string_view line)>;
  // kInvalidArgument if `hand_over_to` of the options is not a URL.
  static Result<std::unique_ptr<FleetApi>> Make(const ServeOptions& options, const FleetKeys& keys, Clock& clock,
                                                Log log);
  // For connections to other replicas.
  const std::shared_ptr<http::TlsContext>& tls() const { return tls_; }
  ~FleetApi() { Stop(); }

  // Call once; all arguments outlive this. Sets the members of `context` for moving. `bodies`: limits of the server.
  void Start(Engine* engine, std::shared_ptr<GenerationContext> context, http::ClientCounts* clients,
             const BodyLimits& bodies);
  // Ends running work and answers nothing more.
  void Stop();

  // Call once for every request, before its body is read. kUnauthenticated.
  Status CheckHead(const http::HttpRequest& head);
  // The limit of the route's body. After Start.
  std::optional<http::BodyLimit> LimitOf(Route route) const;
  // Answers /fleet/import and /fleet/migrate; the latter blocks until its sequences have moved.
  Result<http::HttpResponse> Answer(Route route, const http::HttpRequest& request, std::string_view body);
  // Runs `task` on a thread of this object: migrations on threads that wait for other replicas, imports on threads that
  // do not.
  void Post(Route route, std::function<void()> task) {
    (route == Route::kFleetMigrate ? pool_ : import_pool_).Post(std::move(task));
  }
  // Answers /fleet/streams/{ticket}.
  void Attach(std::shared_ptr<http::Exchange> exchange, const std::string& ticket, const http::Headers& headers);
  // Registers a request that may be moved.
  void Watch(const std::shared_ptr<Generation>& generation);
  void OnTick(TimeNs now_ns);
  void AppendMetrics(results::PrometheusText* text) const;

 private:
  struct Incoming {
    uint64_t reservation = 0;
    int32_t blocks = 0;           // blocks of the reservation
    int32_t written = 0;          // written blocks, from the first on: the rest has stale contents
    int32_t expected_blocks = 0;  // in total, as the source expects
    TimeNs heard_ns = 0;
    bool busy = false;   // a message of it is being processed
    std::string ticket;  // empty: it has not arrived completely
  };
  struct Ticket {
    std::shared_ptr<DetachedExchange> exchange;
    TimeNs until_ns = 0;
  };
  // The delivery thread reaches this object through it, and may still run after the object is destroyed.
  struct Gate {
    std::mutex mutex;
    FleetApi* api = nullptr;  // null: stopped
  };

  FleetApi(const ServeOptions& options, const FleetKeys& keys, std::shared_ptr<http::TlsContext> tls, Clock& clock,
           Log log);
  Result<Json> Take(std::string_view body);
  Result<Json> TakeBegin(const Json& head);
  Result<Json> TakeBlocks(const Message& message);
  Result<Json> TakeFinish(const Message& message);
  Result<Json> TakeDrop(const Json& head);
  Status CheckBlocks(const Incoming& in, int64_t first, int64_t count, std::string_view bytes) const;
  Result<Incoming> Enter(const Json& head, std::string* id);  // marks it as busy until Leave
  void Leave(const std::string& id, Incoming* state) noexcept;
  Result<Json> Migrate(std::string_view body);
  // `why_not` gets the reason of a request that cannot move.
  std::vector<std::shared_ptr<Generation>> Choose(const std::string& request_id, int64_t count, Status* why_not);
  Status MoveOne(Generation& generation, const std::string& to, Moved* moved);
  // With the mutex held: removes expired tickets, and the oldest ones while too many bytes wait.
  std::vector<std::shared_ptr<DetachedExchange>> TakeLateTickets(TimeNs now_ns);
  void HandOver(const std::shared_ptr<Generation>& generation);

  const FleetKeys keys_;
  const std::shared_ptr<http::TlsContext> tls_;
  Clock& clock_;
  const Log log_;
  const DurationNs timeout_ns_, ticket_timeout_ns_;
  const std::string hand_over_to_;
  FleetGuard guard_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  Engine* engine_ = nullptr;
  MigrationPort* port_ = nullptr;
  std::shared_ptr<GenerationContext> context_;
  http::ClientCounts* clients_ = nullptr;
  int64_t max_import_bytes_ = 0;

  mutable std::mutex mutex_;
  bool stopped_ = false;
  std::map<std::string, Incoming> incoming_;
  std::map<std::string, Ticket> tickets_;
  std::vector<std::weak_ptr<Generation>> watched_;  // requests that may move
  std::vector<std::weak_ptr<Call>> arrived_;        // requests that began at another replica
  int64_t moved_out_ = 0, failed_out_ = 0, moved_in_ = 0, bytes_out_ = 0, tickets_expired_ = 0;
  WorkerPool pool_, import_pool_;
};

}  // namespace tactus::serve
