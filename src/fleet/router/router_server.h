// The HTTP face of a fleet: the API of its replicas, forwarded, and what is the router's own (health, metrics, the list
// of replicas). docs/routing.md.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "fleet/router/route_recorder.h"
#include "fleet/router/router_options.h"
#include "tactus/status.h"

namespace tactus::fleet {

class RouterServer {
 public:
  using Log = std::function<void(std::string_view line)>;
  virtual ~RouterServer() = default;

  // What Listen would refuse before it takes the port. kInvalidArgument names the option.
  static Status Check(const RouterOptions& options);
  // Binds, listens and begins to ask the replicas. kInvalidArgument names the option; kUnavailable: the port is in use.
  // `recorder`: told of what is forwarded; may be null; outlives the server.
  static Result<std::unique_ptr<RouterServer>> Listen(const RouterOptions& options, Clock& clock, Log log,
                                                      RouteRecorder* recorder = nullptr);

  virtual uint16_t port() const = 0;
  virtual int64_t ready_replicas() const = 0;
  virtual int64_t replicas() const = 0;
  virtual std::string model() const = 0;  // empty: not known yet
  virtual int64_t in_flight() const = 0;
  // New requests get 503 from now on.
  virtual void StopAdmission() = 0;
  // What has not ended ends with an error.
  virtual void CutOff() = 0;
  // True when every request has been answered within the time.
  virtual bool WaitUntilIdle(DurationNs timeout_ns) = 0;
};

// Until SIGTERM or SIGINT; then requests may finish. The log gets a line when it listens, with the replicas that are
// ready after a moment, a line when the first is ready later than that, warnings, and what changes from then on; with
// --verbose every change from the start.
Status RunRouter(const RouterOptions& options, const RouterServer::Log& log, RouteRecorder* recorder = nullptr);

}  // namespace tactus::fleet
