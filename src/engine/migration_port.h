// The engine's side of sequences that move (tactus/migration.h): asks the step loop, and fills host blocks.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "core/loop/step_loop.h"
#include "engine/delivery.h"
#include "tactus/migration.h"

namespace tactus::engine {

// All outlive it; the loop has ended before the executor does.
struct MigrationParts {
  core::StepLoop* loop = nullptr;
  Executor* executor = nullptr;
  Delivery* delivery = nullptr;
  const core::IntakeLimits* limits = nullptr;
  Clock* clock = nullptr;
  int64_t vocab_size = 0;
};

std::unique_ptr<MigrationPort> MakeMigrationPort(MigrationFormat format, const MigrationParts& parts);

}  // namespace tactus::engine
