#include "fleet/router/fleet_viewers.h"

#include <fmt/format.h>

#include <utility>

#include "base/json.h"
#include "base/json_text.h"
#include "fleet/router/fleet_json.h"
#include "tactus/version.h"

namespace tactus::fleet {

bool FleetViewers::Join(const std::shared_ptr<http::Exchange>& exchange, http::Headers headers) {
  if (stopped_ || viewers_.size() >= kMostViewers) return false;
  http::HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = std::move(headers);
  head.headers.emplace_back("Cache-Control", "no-store");
  exchange->StartStream(std::move(head));
  exchange->Write(fmt::format("event: hello\ndata: {}\n\n", hello_));
  viewers_.push_back({exchange});
  exchange->OnClosed([this, left = exchange.get()] {
    std::erase_if(viewers_, [left](const Viewer& v) { return v.exchange.get() == left; });
  });
  return true;
}

void FleetViewers::Publish(std::string_view members) {
  for (Viewer& v : viewers_) {
    ++v.frame;
    if (v.exchange->unsent() > kMostUnsentBytes) {
      ++v.lost_frames;
      continue;
    }
    v.exchange->Write(
        fmt::format("event: frame\ndata: {{\"frame\":{},\"lost_frames\":{},{}}}\n\n", v.frame, v.lost_frames, members));
    v.lost_frames = 0;
  }
}

void FleetViewers::Stop() {
  stopped_ = true;
  for (const Viewer& v : std::exchange(viewers_, {})) {
    v.exchange->OnClosed({});
    v.exchange->Write("event: end\ndata: {\"reason\":\"the router stops\"}\n\n");
    v.exchange->End();
  }
}

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
