// One CSV line per step of a simulation: its time and contents, to plot a schedule's compute and memory use over time.
// Times in seconds since the start with nine decimals: exact.
// Thread rule: one thread.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/step.h"
#include "base/step_shape.h"
#include "tactus/status.h"

namespace tactus::sim {

class StepLog {
 public:
  // kInvalidArgument: the file cannot be created.
  static Result<std::unique_ptr<StepLog>> Create(const std::string& path);
  ~StepLog();
  void Ran(int32_t replica, const StepPlan& plan, TimeNs start_ns, TimeNs end_ns);
  // kDataLoss: the file is incomplete.
  Status Close();

 private:
  explicit StepLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  const std::string path_;
  std::FILE* file_;
  std::vector<ChunkShape> chunks_;
};

}  // namespace tactus::sim
