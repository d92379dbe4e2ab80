// The HTTP server of a router: forwards the replicas' API, and serves its own routes (health, metrics, the list of
// replicas). docs/how-to/routing.md.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "fleet/router/route_recorder.h"
#include "fleet/router/router_options.h"
#include "http/request_reports.h"
#include "http/serving_process.h"
#include "tactus/status.h"

namespace tactus::fleet {

class RouterServer {
 public:
  using Log = std::function<void(std::string_view line)>;
  virtual ~RouterServer() = default;

  // Checks that need no port. kInvalidArgument names the option.
  static Status Check(const RouterOptions& options);
  // Binds, listens and starts to poll the replicas. kInvalidArgument names the option; kUnavailable: the port is in
  // use. `recorder`: records forwarded requests; may be null; outlives the server.
  // `reports`: reports answered requests; the same.
  static Result<std::unique_ptr<RouterServer>> Listen(const RouterOptions& options, Clock& clock, Log log,
                                                      RouteRecorder* recorder = nullptr,
                                                      const http::RequestReports* reports = nullptr);

  virtual uint16_t port() const = 0;
  virtual int64_t ready_replicas() const = 0;
  virtual int64_t replicas() const = 0;
  virtual std::string model() const = 0;  // empty: not known yet
  virtual int64_t in_flight() const = 0;
  // As of serve::ApiServer. An empty `admin_key`: only this machine may change the fleet.
  virtual Status ReloadTls() = 0;
  virtual Status SetKeys(std::vector<std::string> api_keys, std::string admin_key) = 0;
  // New requests get 503 from now on.
  virtual void StopAdmission() = 0;
  // Ends requests in flight with an error.
  virtual void CutOff() = 0;
  // True if all requests ended within the time.
  virtual bool WaitUntilIdle(DurationNs timeout_ns) = 0;
};

// Runs until SIGTERM or SIGINT; then requests may finish. Logs a line when it listens, with the replicas that are ready
// soon after, a line if the first becomes ready later, warnings, and later changes; with --verbose all changes.
// SIGHUP opens the log again, and applies certificates and keys as they are in their files then.
Status RunRouter(const RouterOptions& options, const RouterServer::Log& log, RouteRecorder* recorder = nullptr,
                 const http::ProcessParts& parts = {});

}  // namespace tactus::fleet
