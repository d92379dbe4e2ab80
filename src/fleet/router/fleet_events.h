// The viewers of a router's GET /events (docs/reference/api.md, "Live events of a fleet").
//
// Invariants: a viewer that reads too slowly loses whole frames, and its next frame says how many; its unread bytes are
// bounded.
//
// Thread rule: the io thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/router/fleet_watch.h"
#include "fleet/router/forward.h"
#include "http/server.h"

namespace tactus::fleet {

class FleetViewers {
 public:
  static constexpr size_t kMostViewers = 16;
  static constexpr int64_t kMostUnsentBytes = 256 << 10;  // of one viewer

  // `hello`: the data of each viewer's first event.
  explicit FleetViewers(std::string hello) : hello_(std::move(hello)) {}

  // Answers the request with a stream. False, and the exchange is untouched: there are kMostViewers, or Stop was
  // called.
  bool Join(const std::shared_ptr<http::Exchange>& exchange, http::Headers headers);
  bool empty() const { return viewers_.empty(); }
  // Writes a frame to every viewer. `members`: of a JSON object, without its braces.
  void Publish(std::string_view members);
  // Ends every stream.
  void Stop();

 private:
  struct Viewer {
    std::shared_ptr<http::Exchange> exchange;
    int64_t frame = 0, lost_frames = 0;  // frames so far; lost ones since the last that was written
  };

  const std::string hello_;
  std::vector<Viewer> viewers_;
  bool stopped_ = false;
};

// The data of the first event, and the members of a frame.
std::string FleetHello(std::string_view balancer);
std::string FleetFrame(const FleetWatch& watch, const ForwardCounts& counts, TimeNs now_ns);

}  // namespace tactus::fleet
