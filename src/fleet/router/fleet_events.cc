#include "fleet/router/fleet_events.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_text.h"
#include "fleet/router/fleet_json.h"
#include "tactus/version.h"

namespace tactus::fleet {

std::string FleetHello(std::string_view balancer) {
  return json_text::JsonText({{"fleet", true}, {"version", Version()}, {"balancer", balancer}});
}

std::string FleetFrame(const FleetWatch& watch, const ForwardCounts& counts, TimeNs now_ns) {
  int64_t answers = 0, failed = 0;
  for (const auto& [key, count] : counts.answers) {
    answers += count;
    if (key.second == 0 || key.second >= 500) failed += count;
  }
  Json migrations = Json::object();
  for (const auto& [result, count] : counts.migrations) migrations[result] = count;
  return fmt::format(
      "\"now_ms\":{:.3f},\"fleet\":{},\"totals\":{{\"answers\":{},\"failed\":{},\"retries\":{},\"hedges\":{},"
      "\"cut_streams\":{},\"migrations\":{}}}",
      static_cast<double>(now_ns) * 1e-6, FleetJson(watch), answers, failed, counts.retries, counts.hedges,
      counts.cut_streams, json_text::JsonText(migrations));
}

}  // namespace tactus::fleet
