// One CSV line per request of a simulation, written when the request ends. Times in seconds since the start with nine
// decimals: exact. Thread rule: one thread.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "core/loop/events.h"
#include "sim/workload/workload.h"
#include "tactus/status.h"

namespace tactus::sim {

class RequestLog {
 public:
  // kInvalidArgument: the file cannot be created.
  static Result<std::unique_ptr<RequestLog>> Create(const std::string& path);
  ~RequestLog();
  void Ended(const WorkloadRequest& request, int32_t replica, const core::RequestDoneEvent& done);
  // For requests that never ran: too long, or the queue was full.
  void Refused(const WorkloadRequest& request, TimeNs now_ns);
  // kDataLoss: the file is incomplete.
  Status Close();

 private:
  explicit RequestLog(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
  const std::string path_;
  std::FILE* file_;
};

}  // namespace tactus::sim
