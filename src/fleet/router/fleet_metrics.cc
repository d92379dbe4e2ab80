// What a fleet tells Prometheus.
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
  each("tactus_route_in_flight", Type::kGauge, "Requests that were routed to a replica and have not ended.",
       [](const Endpoint& e) { return e.view.outstanding_requests; });
  each("tactus_route_ejections_total", Type::kCounter, "How often a replica was ejected.",
       [](const Endpoint& e) { return e.ejections; });
  each("tactus_route_replica_failures_total", Type::kCounter, "Requests that failed at a replica, retried or not.",
       [](const Endpoint& e) { return e.failures; });
  each("tactus_route_replica_running", Type::kGauge, "Sequences that run at a replica, as it said last.",
       [](const Endpoint& e) { return e.view.running; });
  each("tactus_route_replica_waiting", Type::kGauge, "Requests that wait at a replica, as it said last.",
       [](const Endpoint& e) { return e.waiting_requests; });
  each("tactus_route_replica_free_kv_tokens", Type::kGauge,
       "KV memory of a replica that is free, less what waits and was routed there since it was asked.",
       [](const Endpoint& e) { return e.view.free_kv_tokens; });
  std::lock_guard lock(mutex_);
  text->Histogram("tactus_route_decision_seconds", "Time to choose a replica.", decision_s_);
}

}  // namespace tactus::fleet
