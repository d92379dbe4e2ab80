// Engine::Create with injected parts, for tests and for programs that bring their own device.
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
  Clock* clock = nullptr;      // used by the loop and the engine; outlives the engine
  Clock* stopwatch = nullptr;  // measures decision times, read on the engine thread; null: the clock
  core::RunRecorder* recorder =
      nullptr;  // receives what runs, from the start to Close; null: nothing is recorded; outlives the engine
  std::unique_ptr<Backend> backend;  // null: MakeBackend chooses (compute/exec/make_backend.h)
};

// Like Engine::Create, which passes only the machine's clock.
Result<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options, const Engine::Progress& progress,
                                             EngineParts parts);

}  // namespace tactus::engine
