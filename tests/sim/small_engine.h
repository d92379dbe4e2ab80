// The default engine of simulator tests: 16 sequences, 2,000 blocks of 16 tokens.
#pragma once

#include <string>

#include "sim/simulator/simulator.h"

namespace tactus::sim {

inline SimulationConfig SmallEngine(const StepTimeModel& model, const std::string& preset = "sarathi-serve") {
  SimulationConfig c;
  c.step_time = &model;
  c.scheduler.preset = preset;
  c.scheduler.limits.max_num_seqs = 16;
  c.scheduler.limits.max_model_len = 4096;
  c.scheduler.limits.blocks_total = 2000;
  c.scheduler.limits.block_size = 16;
  c.scheduler.limits.unlimited_steps = true;
  return c;
}

}  // namespace tactus::sim
