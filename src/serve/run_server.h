// `tactus serve` after parsing its options: binds, loads, serves, stops on a signal.
#pragma once

#include <functional>
#include <memory>

#include "http/serving_process.h"
#include "serve/serve_options.h"
#include "tactus/engine.h"
#include "tactus/options.h"
#include "tactus/status.h"

namespace tactus {

using EngineFactory = std::function<Result<std::unique_ptr<Engine>>(const EngineOptions&, const Engine::Progress&)>;

// Checks the options before a model is searched for or a port is bound. kInvalidArgument names the option, kDataLoss a
// folder that cannot be written.
Status CheckServeOptions(const EngineOptions& engine_options, const ServeOptions& options);

// Serves until SIGTERM or SIGINT. Returns ok after a clean stop, even if the shutdown time-out cut requests off with an
// error; else the failure: kUnavailable for a port in use, the factory's status, kInternal if the engine became
// unhealthy. A second signal ends the process at once; so does the first while the model is loading. `log` gets
// start-up and shutdown lines. `result` (may be null) gets Engine::Outcome() at the end. Call from the main thread
// before other threads start: it blocks the signals for all later threads.
//
// SIGHUP opens the log again, and applies certificates, keys and classes as they are in their files then.
Status RunServer(const EngineOptions& engine_options, const ServeOptions& options, const EngineFactory& factory,
                 const Engine::Progress& log, std::optional<RunResult>* result = nullptr,
                 const http::ProcessParts& parts = {});

}  // namespace tactus
