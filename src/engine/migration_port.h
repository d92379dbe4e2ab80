// The engine's side of migration (tactus/migration.h): sends requests to the step loop, and fills host blocks.
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

// All outlive the port; the loop ends before the executor is destroyed.
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
