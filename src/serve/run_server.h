// `tactus serve` after its options are read: binds, loads, serves, stops on a signal.
#pragma once

#include <functional>
#include <memory>

#include "serve/serve_options.h"
#include "tactus/engine.h"
#include "tactus/options.h"
#include "tactus/status.h"

namespace tactus {

using EngineFactory = std::function<Result<std::unique_ptr<Engine>>(const EngineOptions&, const Engine::Progress&)>;

// What is wrong with the options before a model is looked for or a port taken; kInvalidArgument names the option, and
// kDataLoss a folder that cannot be written.
Status CheckServeOptions(const EngineOptions& engine_options, const ServeOptions& options);

// Serves until SIGTERM or SIGINT. Returns ok after a clean stop (requests cut off by the shutdown timeout included:
// their clients got an error), else what failed: kUnavailable for a port in use, the factory's status, kInternal when
// the engine became unhealthy. A second signal ends the process at once; so does the first while the model is loading.
// `log` gets start-up and shutdown lines. `result` (may be null) gets Engine::Outcome() at the end. Call from
// the main thread, before others start: it blocks the signals for every thread that follows.
Status RunServer(const EngineOptions& engine_options, const ServeOptions& options, const EngineFactory& factory,
                 const Engine::Progress& log, std::optional<RunResult>* result = nullptr);

}  // namespace tactus
