// The fleet behind a running picker: FleetWatch and the discovery of replicas, on their own thread. Gateways need IP
// addresses, so a replica known by name is never picked.
//
// Thread rule: any thread.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "fleet/picker/picker.h"
#include "fleet/router/discovery.h"
#include "fleet/router/fleet_watch.h"
#include "http/loop.h"

namespace tactus::fleet {

class WatchedFleet final : public EndpointSource {
 public:
  using Log = std::function<void(std::string_view line)>;

  // kInvalidArgument names the option. The clock outlives this; the log is called on any thread.
  static Result<std::unique_ptr<WatchedFleet>> Create(const FleetOptions& options, Clock& clock, Log log);
  ~WatchedFleet() override;

  std::optional<Picked> Pick(const RouteRequest& request, std::span<const std::string> subset,
                             std::span<const int32_t> excluded) override;
  void Ended(uint64_t pick, int32_t output_tokens) override { watch_->Ended(pick, output_tokens); }
  void Answered(int32_t replica, bool well) override;
  std::vector<Endpoint> Endpoints() const override;
  int64_t ready() const override { return watch_->ready(); }
  Status ReloadTls() { return watch_->tls()->Reload(); }  // the certificates for replicas
  void AppendMetrics(results::PrometheusText* text) const override { watch_->AppendMetrics(text); }

 private:
  explicit WatchedFleet(Log log) : log_(std::move(log)) {}
  // Logged once for each name.
  void SayNoIp(const std::string& url);

  const Log log_;
  http::Loop loop_;
  std::unique_ptr<FleetWatch> watch_;
  std::unique_ptr<Discovery> discovery_;
  std::mutex mutex_;  // guards named_
  std::vector<std::string> named_;
  std::thread thread_;
};

}  // namespace tactus::fleet
