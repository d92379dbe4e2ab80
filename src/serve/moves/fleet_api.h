// What members of a fleet ask of a server (docs/migration.md): to send sequences to another replica, to take some from
// one, and to go on with a client's stream. Every request is signed with the fleet's secret (base/fleet_secret.h).
//
// A sequence that comes is an Incoming from its first message to its ticket: host blocks that fill up. A message that
// does not come in time ends it. The ticket is what the router asks for its answer with; a ticket that is not asked for
// in time ends what runs under it, and so does one whose answer is too long to be kept with those of the others.
//
// Thread rule: Attach and OnTick on the io thread, Watch and Answer on any; one mutex. The engine, and other replicas,
// are never called with it held.
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
#include "serve/generation.h"
#include "serve/moves/detached_exchange.h"
#include "serve/moves/outgoing.h"
#include "serve/routes.h"
#include "serve/serve_options.h"

namespace tactus::serve {

struct Message;  // serve/moves/migration_text.h

class FleetApi {
 public:
  using Log = std::function<void(std::string_view line)>;
  // `hand_over_to` of the options: kInvalidArgument for what is no URL.
  static Result<std::unique_ptr<FleetApi>> Make(const ServeOptions& options, const FleetKeys& keys, Clock& clock,
                                                Log log);
  ~FleetApi() { Stop(); }

  // Once; all outlive this. Sets what `context` says of moving. `bodies`: those of the server.
  void Start(Engine* engine, std::shared_ptr<GenerationContext> context, http::ClientCounts* clients,
             const BodyLimits& bodies);
  // Ends what runs, answers nothing more.
  void Stop();

  // Of every request, once, before its body is read. kUnauthenticated.
  Status CheckHead(const http::HttpRequest& head);
  // Of its body. After Start.
  std::optional<http::BodyLimit> LimitOf(Route route) const;
  // /fleet/import and /fleet/migrate, the second one of them for as long as it takes.
  Result<http::HttpResponse> Answer(Route route, const http::HttpRequest& request, std::string_view body);
  // Runs it on a thread of this object, one that waits for other replicas or one that does not.
  void Post(Route route, std::function<void()> task) {
    (route == Route::kFleetMigrate ? pool_ : import_pool_).Post(std::move(task));
  }
  // /fleet/streams/{ticket}.
  void Attach(std::shared_ptr<http::Exchange> exchange, const std::string& ticket, const http::Headers& headers);
  // A request that may be moved.
  void Watch(const std::shared_ptr<Generation>& generation);
  void OnTick(TimeNs now_ns);
  void AppendMetrics(results::PrometheusText* text) const;

 private:
  struct Incoming {
    uint64_t room = 0;
    int32_t blocks = 0;           // of room
    int32_t written = 0;          // of these, from the first on: the rest holds what others have left there
    int32_t expected_blocks = 0;  // in all, as the source thinks
    TimeNs heard_ns = 0;
    bool busy = false;   // a message of it is worked on
    std::string ticket;  // empty: it has not come whole
  };
  struct Ticket {
    std::shared_ptr<DetachedExchange> exchange;
    TimeNs until_ns = 0;
  };
  // What the delivery thread finds us by, which may run on when this object goes.
  struct Gate {
    std::mutex mutex;
    FleetApi* api = nullptr;  // null: gone
  };

  FleetApi(const ServeOptions& options, const FleetKeys& keys, Clock& clock, Log log);
  Result<Json> Take(std::string_view body);
  Result<Json> TakeBegin(const Json& head);
  Result<Json> TakeBlocks(const Message& message);
  Result<Json> TakeFinish(const Message& message);
  Result<Json> TakeDrop(const Json& head);
  Status CheckBlocks(const Incoming& in, int64_t first, int64_t count, std::string_view bytes) const;
  Result<Incoming> Enter(const Json& head, std::string* id);  // its turn, until Leave
  void Leave(const std::string& id, Incoming* state) noexcept;
  Result<Json> Migrate(std::string_view body);
  // `why_not` becomes the reason of one that does not move.
  std::vector<std::shared_ptr<Generation>> Choose(const std::string& request_id, int64_t count, Status* why_not);
  Status MoveOne(Generation& generation, const std::string& to, Moved* moved);
  // With the mutex held: tickets whose time is over, and, where all that waits is too much, the oldest.
  std::vector<std::shared_ptr<DetachedExchange>> TakeLateTickets(TimeNs now_ns);
  void HandOver(const std::shared_ptr<Generation>& generation);

  const FleetKeys keys_;
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
  std::vector<std::weak_ptr<Generation>> watched_;  // that may move
  std::vector<std::weak_ptr<Call>> arrived_;        // that began elsewhere
  int64_t moved_out_ = 0, failed_out_ = 0, moved_in_ = 0, bytes_out_ = 0, tickets_expired_ = 0;
  WorkerPool pool_, import_pool_;
};

}  // namespace tactus::serve
