// The ports of an endpoint picker: external processing and health over gRPC, metrics over HTTP.
//
// Health (grpc.health.v1): "" and "liveness" report SERVING as long as this process answers; "readiness" and the
// external processing service's own name do so from the first ready replica until the stop begins. A later lack of
// replicas does not change it: requests then get an error response. Thread rule: one thread, also for Stop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "fleet/picker/epp_options.h"
#include "fleet/picker/picker.h"
#include "tactus/status.h"

namespace tactus::fleet {

class PickerServer {
 public:
  // Most connections of data planes and probes; fewer if the process is limited to few descriptors (http::RoomWithin).
  static constexpr int64_t kMostConnections = 4096;

  // Binds the ports and serves. kInvalidArgument names the option, kUnavailable a port in use. The arguments outlive
  // this.
  static Result<std::unique_ptr<PickerServer>> Start(const EppOptions& options, Picker& picker, EndpointSource& source,
                                                     Clock& clock);
  ~PickerServer();
  PickerServer(const PickerServer&) = delete;
  PickerServer& operator=(const PickerServer&) = delete;

  int grpc_port() const;
  int health_port() const;
  int metrics_port() const;
  // New connections use --tls-cert and --tls-key as they are now; open streams go on. An error, which names the
  // option, changes nothing. Without TLS it does nothing.
  Status ReloadTls();
  // A problem of the certificate that lets connections be made, such as its end; empty: none.
  std::string TlsWarning() const;
  // Accepts no new streams; returns when the open ones have ended (true), or when the time is over and they were cut
  // off.
  bool Stop(DurationNs timeout_ns);

  struct Impl;

 private:
  explicit PickerServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tactus::fleet
