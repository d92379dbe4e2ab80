// The HTTP API over one engine: routes, access, limits, and answers of the io thread that never wait for compute. Any
// thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "http/request_reports.h"
#include "serve/serve_options.h"
#include "tactus/engine.h"
#include "tactus/options.h"
#include "tactus/status.h"

namespace tactus::serve {

class ApiServer {
 public:
  // The errors of the options that Listen reports before it binds the port.
  static Status Check(const ServeOptions& options);
  // Binds, and answers at once: /health, /ready (503), and 503 for the rest until SetEngine. `log` gets events of
  // batches that no answer reports.
  using Log = std::function<void(std::string_view line)>;
  // `reports`: reports answered requests; may be null; outlives the server.
  static Result<std::unique_ptr<ApiServer>> Listen(const ServeOptions& options, Clock& clock, Log log = {},
                                                   const http::RequestReports* reports = nullptr);
  // Closes every connection and cancels running requests.
  virtual ~ApiServer() = default;

  virtual uint16_t port() const = 0;
  // Makes the server ready. `engine` outlives this server. Call once.
  virtual void SetEngine(Engine* engine, const EngineOptions& engine_options) = 0;
  // Reads certificates again, and replaces the keys of the clients and their classes. Not ok: that part stays as it
  // was. Any thread.
  virtual Status ReloadTls() = 0;
  virtual Status SetKeys(std::vector<std::string> api_keys, std::vector<std::string> classes) = 0;
  // While a step is stuck, /health fails and new requests get 503. Any thread.
  virtual void SetStuck(bool stuck) = 0;
  // New requests get 503; accepted ones continue.
  virtual void StopAdmission() = 0;
  // Lets the parse threads finish within the time; then their running and queued requests get 503. Call after the
  // engine has drained.
  virtual void FinishParsing(DurationNs timeout_ns) = 0;
  // True if every answer has been written within the time.
  virtual bool WaitUntilIdle(DurationNs timeout_ns) = 0;
};

// The state that routers poll, several times a second (docs/how-to/routing.md). `engine`: used if the state is "ready";
// may be null otherwise.
std::string FleetStateText(const Engine* engine, std::string_view state);

}  // namespace tactus::serve
