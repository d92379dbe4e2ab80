// The replicas that run: asks each how it is, several times a second, and keeps what route::Fleet knows of them true.
// Who routes requests (the proxy, the endpoint picker) asks it for a replica and tells it how that went.
//
// A replica takes requests when it says that it is ready, serves the fleet's model, is not being drained and has not
// failed --eject-after requests in a row. One that has become ready gets its share by and by (--slow-start).
//
// Thread rule: Pick, Ended, Failed, Endpoints and the counts on any thread; everything else, and what is called back,
// on the loop's. Invariant: every ticket is ended once, by Ended, or by the replica's removal.
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

  // Whether Create would take them: for before a port is taken. kInvalidArgument names the option.
  static Status Check(const FleetOptions& options);
  // Begins to ask as soon as the loop runs. kInvalidArgument as Check's. Clock, loop and log outlive it; the log
  // takes lines from any thread.
  static Result<std::unique_ptr<FleetWatch>> Create(const FleetOptions& options, Clock& clock, http::Loop& loop,
                                                    Log log);
  ~FleetWatch();

  // Chooses a replica and counts the request there. `subset`: addresses, of which it shall be one; empty: any.
  // `excluded`: where it has been already. Nothing: none of them takes requests.
  std::optional<Picked> Pick(const RouteRequest& request, std::span<const std::string> subset = {},
                             std::span<const int32_t> excluded = {});
  // Counts a request that has moved to the replica by itself. Nothing: there is no such Tactus replica.
  std::optional<Picked> Moved(const std::string& url, const RouteRequest& request);
  // A request has ended there, with an answer of so many tokens; -1: it failed or was refused. Unknown tickets are
  // ignored.
  void Ended(uint64_t ticket, int32_t output_tokens);
  // The replica did not do what it was asked (no connection, no answer, 5xx), or did. One that was removed: no effect.
  void Failed(int32_t replica);
  void Succeeded(int32_t replica);

  // Sequences that had better run elsewhere: everything of a replica that is drained, and, where the balancer moves
  // sequences, one of each that is short of memory. Tactus replicas alone.
  struct Move {
    std::string from, to;  // URLs
    bool all = false;
  };
  std::vector<Move> Moves() const;

  std::vector<Endpoint> Endpoints() const;
  int64_t ready() const;  // replicas that take requests
  int64_t size() const;
  std::string model() const;  // empty: not known yet
  void AppendMetrics(results::PrometheusText* text) const;

  // kInvalidArgument for what is no URL of a replica. One that is there, drained or not, takes requests again.
  Status Add(const std::string& url);
  // What runs there goes on. kNotFound.
  Status Remove(const std::string& url);
  Status SetDraining(const std::string& url, bool draining);
  // Calls back while a replica counts as dead, at each poll: what runs there and is silent will not be answered.
  void OnLost(std::function<void(int32_t replica)> lost) { lost_ = std::move(lost); }

 private:
  enum class Said { kNothing, kReady, kNotReady, kRefused };
  struct Replica;
  struct Ticket {
    int32_t place = 0;
    int32_t prompt_tokens = 0;
  };
  struct Reply;

  FleetWatch(const FleetOptions& options, Clock& clock, http::Loop& loop, Log log, std::unique_ptr<Fleet> fleet);
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
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // what is called back later looks at it
  std::function<void(int32_t)> lost_;

  mutable std::mutex mutex_;
  std::unique_ptr<Fleet> fleet_;
  std::vector<std::unique_ptr<Replica>> replicas_;  // by their place in the fleet, which others take over
  std::unordered_map<uint64_t, Ticket> tickets_;
  uint64_t next_ticket_ = 1;
  int32_t next_number_ = 0;
  std::string model_;
  results::BucketHistogram decision_s_;
};

}  // namespace tactus::fleet
