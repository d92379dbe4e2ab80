// The ports of an endpoint picker: external processing and health over gRPC, metrics over HTTP.
//
// Health (grpc.health.v1): "" and "liveness" say SERVING as long as this process answers, "readiness" and the external
// processing service's own name from the first replica that was ready to the beginning of the stop. No replica later is
// no reason to be taken out: requests then get an answer that says so. Thread rule: one thread; Stop on it too.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "fleet/picker/epp_options.h"
#include "fleet/picker/picker.h"
#include "tactus/status.h"

namespace tactus::fleet {

class PickerServer {
 public:
  // Of data planes and probes; fewer where the process may have few descriptors (http::RoomWithin).
  static constexpr int64_t kMostConnections = 4096;

  // Binds and answers. kInvalidArgument names the option, kUnavailable a port that is taken. The others outlive it.
  static Result<std::unique_ptr<PickerServer>> Start(const EppOptions& options, Picker& picker, EndpointSource& source,
                                                     Clock& clock);
  ~PickerServer();
  PickerServer(const PickerServer&) = delete;
  PickerServer& operator=(const PickerServer&) = delete;

  int grpc_port() const;
  int health_port() const;
  int metrics_port() const;
  // No new streams; returns when those that are open have ended (true), or when the time is over and they were cut off.
  bool Stop(DurationNs timeout_ns);

  struct Impl;

 private:
  explicit PickerServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::fleet
