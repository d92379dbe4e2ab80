// The API over one engine: routes, access, limits, and the io-thread answers that never wait for compute. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "serve/serve_options.h"
#include "tactus/engine.h"
#include "tactus/options.h"
#include "tactus/status.h"

namespace tactus::serve {

class ApiServer {
 public:
  // What Listen would refuse before it takes the port.
  static Status Check(const ServeOptions& options);
  // Binds and answers at once: /health, /ready (503), 503 for the rest until there is an engine.
  // `log` gets what becomes of batches where no answer says it.
  using Log = std::function<void(std::string_view line)>;
  static Result<std::unique_ptr<ApiServer>> Listen(const ServeOptions& options, Clock& clock, Log log = {});
  // Closes every connection; what still runs is cancelled.
  virtual ~ApiServer() = default;

  virtual uint16_t port() const = 0;
  // Ready from now on. `engine` outlives this server. Once.
  virtual void SetEngine(Engine* engine, const EngineOptions& engine_options) = 0;
  // 503 for everything new; what was accepted goes on.
  virtual void StopAdmission() = 0;
  // Lets the parse threads finish within the time; what they still work on, or have queued, gets 503 and ends. After
  // the engine has drained.
  virtual void FinishParsing(DurationNs timeout_ns) = 0;
  // True when every answer has been written within the time.
  virtual bool WaitUntilIdle(DurationNs timeout_ns) = 0;
};

// The page at "/": what is served, and where to look.
std::string StatusPage(const Engine* engine, const std::string& scheduler);
// What routers ask for, several times a second (docs/routing.md). `engine`: where the state is "ready".
std::string FleetStateText(const Engine* engine, std::string_view state);

}  // namespace tactus::serve
