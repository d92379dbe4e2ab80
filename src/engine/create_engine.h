// Engine::Create with its parts given: what a test, or a program that brings its own device, puts in their place.
#pragma once

#include <memory>

#include "base/backend.h"
#include "base/clock.h"
#include "tactus/engine.h"

namespace tactus::core {
class RunRecorder;  // core/loop/run_recorder.h
}  // namespace tactus::core

namespace tactus::engine {

struct EngineParts {
  Clock* clock = nullptr;      // the loop's and the engine's; outlives the engine
  Clock* stopwatch = nullptr;  // of decision times, asked on the engine thread; null: the clock
  core::RunRecorder* recorder =
      nullptr;                       // told of what runs, from the start to Close; null: none is; outlives the engine
  std::unique_ptr<Backend> backend;  // null: MakeBackend chooses (compute/exec/make_backend.h)
};

// As Engine::Create, which passes the machine's clock and no more.
Result<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options, const Engine::Progress& progress,
                                             EngineParts parts);

}  // namespace tactus::engine
