// Watches the running replicas: polls each several times a second and keeps Fleet up to date. The router and the
// endpoint picker request replicas from it and report the results.
//
// A replica accepts requests while it reports ready, serves the fleet's model, is not drained and has not failed
// --eject-after requests in a row. A replica that becomes ready gets its share gradually (--slow-start).
//
// Thread rule: Pick, Ended, Failed, Endpoints and the counts on any thread; everything else, and callbacks, on the
// loop's. Invariant: every pick is ended once, by Ended, or by the replica's removal.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "fleet/balance/fleet.h"
#include "fleet/router/endpoint.h"
#include "fleet/router/router_options.h"
#include "http/client.h"
#include "http/loop.h"
#include "results/obs/prometheus_text.h"

namespace tactus::fleet {

class FleetWatch {
 public:
  using Log = std::function<void(std::string_view line)>;

  // Whether Create would succeed: a check that needs no port. kInvalidArgument names the option.
  static Status Check(const FleetOptions& options);
  // Starts to poll as soon as the loop runs. kInvalidArgument as from Check. Clock, loop and log outlive this; the log
  // is called on any thread.
  static Result<std::unique_ptr<FleetWatch>> Create(const FleetOptions& options, Clock& clock, http::Loop& loop,
                                                    Log log);
  ~FleetWatch();

  // Chooses a replica and counts the request there. `subset`: permitted addresses; empty: any. `excluded`: replicas
  // that were tried already. None: no permitted replica accepts requests.
  std::optional<Picked> Pick(const RouteRequest& request, std::span<const std::string> subset = {},
                             std::span<const int32_t> excluded = {});
  // Counts a request that has moved to the replica. None: there is no such Tactus replica.
  std::optional<Picked> Moved(const std::string& url, const RouteRequest& request);
  // A request has ended, with `output_tokens`; -1: it failed or was refused. Unknown picks are ignored.
  void Ended(uint64_t pick, int32_t output_tokens);
  // The replica failed a request (no connection, no response, 5xx), or served it. No effect on a removed replica.
  void Failed(int32_t replica);
  void Succeeded(int32_t replica);

  // Sequences that should move: all of a drained replica, and, if the balancer moves sequences, one of each replica
  // that is short of memory. Only for Tactus replicas.
  struct Move {
    std::string from, to;  // URLs
    bool all = false;
  };
  std::vector<Move> Moves() const;

  std::vector<Endpoint> Endpoints() const;
  const std::shared_ptr<http::TlsContext>& tls() const { return tls_; }  // for clients of the replicas
  int64_t ready() const;                                                 // replicas that accept requests
  int64_t size() const;
  std::string model() const;  // empty: not known yet
  void AppendMetrics(results::PrometheusText* text) const;

  // kInvalidArgument: not a replica's URL. A replica that exists, drained or not, accepts requests again.
  Status Add(const std::string& url);
  // Requests that run there continue. kNotFound.
  Status Remove(const std::string& url);
  Status SetDraining(const std::string& url, bool draining);
  // Called at each poll while a replica counts as dead: silent requests there will not be answered.
  void OnLost(std::function<void(int32_t replica)> lost) { lost_ = std::move(lost); }

 private:
  enum class Said { kNothing, kReady, kNotReady, kRefused };
  struct Replica;
  struct OpenPick {
    int32_t place = 0;
    int32_t prompt_tokens = 0;
  };
  struct Reply;

  FleetWatch(const FleetOptions& options, Clock& clock, http::Loop& loop, Log log, std::unique_ptr<Fleet> fleet,
             std::shared_ptr<http::TlsContext> tls);
  Picked CountLocked(Replica* replica, const RouteRequest& request);
  Replica* FindLocked(const std::string& url);
  Replica* FindLocked(int32_t number);
  bool TakesLocked(const Replica& replica, TimeNs now_ns) const;
  const char* StateLocked(const Replica& replica, TimeNs now_ns) const;
  double ShareLocked(const Replica& replica, TimeNs now_ns) const;
  void Poll(int32_t replica);
  void Answered(int32_t replica, const Status& status, const http::HttpResponse& response);
  DurationNs ReadLocked(Replica* replica, const http::HttpResponse& response);
  bool ModelIsOldLocked(const Replica& replica) const;
  void HeardLocked(Replica* replica, ReplicaReport report);
  void NotHeardLocked(Replica* replica, const std::string& why);
  void TellLocked(Replica* replica, const ReplicaState& state);
  void ChangedLocked(Replica* replica, Said said, const std::string& why);
  void Schedule(int32_t replica, DurationNs after_ns);

  const FleetOptions options_;
  Clock& clock_;
  http::Loop& loop_;
  const Log log_;
  const std::shared_ptr<http::TlsContext> tls_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // checked by later callbacks
  std::function<void(int32_t)> lost_;

  mutable std::mutex mutex_;
  std::unique_ptr<Fleet> fleet_;
  std::vector<std::unique_ptr<Replica>> replicas_;  // by place in the fleet; places are reused
  std::unordered_map<uint64_t, OpenPick> picks_;
  uint64_t next_pick_ = 1;
  int32_t next_number_ = 0;
  std::string model_;
  results::BucketHistogram decision_s_;
};

}  // namespace tactus::fleet
