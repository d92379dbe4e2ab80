#include "fleet/router/fleet_json.h"

#include "base/json.h"
#include "base/json_text.h"

namespace tactus::fleet {

std::string FleetJson(const FleetWatch& watch) {
  Json replicas = Json::array();
  for (const Endpoint& e : watch.Endpoints()) {
    Json one = {{"url", e.url}, {"state", e.state}};
    if (!e.why.empty()) one["why"] = e.why;
    one["kind"] = NameOf(e.kind);
    if (!e.model.empty()) one["model"] = e.model;
    if (!e.version.empty()) one["version"] = e.version;
    one["in_flight"] = e.view.outstanding_requests;
    one["requests"] = e.requests;
    one["failures"] = e.failures;
    one["ejections"] = e.ejections;
    if (e.tells_memory) {
      one["running"] = e.view.running;
      one["waiting"] = e.waiting_requests;
      one["free_kv_tokens"] = e.view.free_kv_tokens;
      one["kv_tokens"] = e.view.kv_tokens;
    }
    replicas.push_back(std::move(one));
  }
  const Json all = {{"model", watch.model()}, {"ready", watch.ready()}, {"replicas", std::move(replicas)}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tactus::fleet
