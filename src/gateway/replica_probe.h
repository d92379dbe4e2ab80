// Replicas of a fixed list, each asked once in a while whether it is ready, behind route::Fleet and its balancer.
//
// Thread rule: any thread; the asking is done on a thread of its own, one replica after the other.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "gateway/picker.h"
#include "http/client.h"
#include "route/fleet.h"

namespace tactus::gateway {

class ReplicaProbe final : public EndpointSource {
 public:
  // kInvalidArgument names the option.
  static Result<std::unique_ptr<ReplicaProbe>> Create(const std::vector<std::string>& urls, const std::string& balancer,
                                                      DurationNs interval_ns, Clock& clock);
  ~ReplicaProbe() override;

  std::optional<Picked> Pick(const route::RouteRequest& request, std::span<const std::string> subset,
                             std::span<const int32_t> excluded) override;
  void Ended(uint64_t ticket, int32_t prompt_tokens, int32_t output_tokens) override;
  std::vector<Endpoint> Endpoints() const override;
  int64_t ready() const override;

 private:
  ReplicaProbe(std::unique_ptr<route::Fleet> fleet, std::vector<Endpoint> endpoints, std::vector<http::Url> urls,
               DurationNs interval_ns, Clock& clock);
  void AskAll();
  bool Asked(const http::Url& url);

  const std::vector<http::Url> urls_;
  const DurationNs interval_ns_;
  Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable stop_came_;
  bool stop_ = false;
  std::unique_ptr<route::Fleet> fleet_;
  std::vector<Endpoint> endpoints_;
  std::unordered_map<uint64_t, int32_t> tickets_;
  uint64_t next_ticket_ = 1;
  std::thread thread_;
};

}  // namespace tactus::gateway
