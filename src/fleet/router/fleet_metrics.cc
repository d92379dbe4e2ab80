// Prometheus metrics of a fleet.
#include <algorithm>
#include <string_view>
#include <vector>

#include "fleet/router/fleet_watch.h"

namespace tactus::fleet {

void FleetWatch::AppendMetrics(results::PrometheusText* text) const {
  using Type = results::PrometheusText::Type;
  const std::vector<Endpoint> all = Endpoints();
  text->Family("tactus_route_replicas", Type::kGauge, "Replicas, by state.");
  for (const char* state : {"ready", "starting", "unready", "unreachable", "ejected", "draining", "refused"}) {
    const auto count =
        std::count_if(all.begin(), all.end(), [&](const Endpoint& e) { return std::string_view(e.state) == state; });
    text->Sample(static_cast<double>(count), {{"state", state}});
  }
  const auto each = [&](const char* name, Type type, const char* help, auto value) {
    text->Family(name, type, help);
    for (const Endpoint& e : all) text->Sample(static_cast<double>(value(e)), {{"replica", e.address}});
  };
  each("tactus_route_in_flight", Type::kGauge, "Requests in flight at a replica.",
       [](const Endpoint& e) { return e.view.outstanding_requests; });
  each("tactus_route_ejections_total", Type::kCounter, "Number of times a replica was ejected.",
       [](const Endpoint& e) { return e.ejections; });
  each("tactus_route_replica_failures_total", Type::kCounter, "Requests that failed at a replica, retried or not.",
       [](const Endpoint& e) { return e.failures; });
  each("tactus_route_replica_running", Type::kGauge, "Sequences running at a replica, by its last report.",
       [](const Endpoint& e) { return e.view.running; });
  each("tactus_route_replica_waiting", Type::kGauge, "Requests waiting at a replica, by its last report.",
       [](const Endpoint& e) { return e.waiting_requests; });
  each("tactus_route_replica_free_kv_tokens", Type::kGauge,
       "Free KV memory of a replica, less queued requests and those routed since its last report.",
       [](const Endpoint& e) { return e.view.free_kv_tokens; });
  std::lock_guard lock(mutex_);
  text->Histogram("tactus_route_decision_seconds", "Time to choose a replica.", decision_s_);
}

}  // namespace tactus::fleet
