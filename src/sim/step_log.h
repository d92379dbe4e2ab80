// One CSV line per step of a simulation: when it ran and what it held, so that the compute and the memory that a
// schedule asks for can be drawn over time. Times in seconds since the start with nine decimals: exact.
//
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
  // kInvalidArgument when the file cannot be made.
  static Result<std::unique_ptr<StepLog>> Create(const std::string& path);
  ~StepLog();
  void Ran(int32_t replica, const StepPlan& plan, TimeNs start_ns, TimeNs end_ns);
  // kDataLoss: not everything could be written.
  Status Close();

 private:
  explicit StepLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  const std::string path_;
  std::FILE* file_;
  std::vector<ChunkShape> chunks_;
};

}  // namespace tactus::sim
