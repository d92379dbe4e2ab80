// A scripted fleet: replica i is at 10.0.0.i:8000, requests go in turn to the ready and permitted replicas, and every
// call is recorded. A pick that is ended twice, or never, fails the test.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fleet/picker/picker.h"

namespace tactus::fleet {

inline std::string AddressOf(int32_t replica) {
  return fmt::format("10.0.0.{}:8000", replica);
}

class ScriptedFleet final : public EndpointSource {
 public:
  struct PickCall {
    int32_t prompt_tokens = 0;
    std::vector<Hash128> keys;
    std::vector<std::string> subset;
  };
  struct EndCall {
    int32_t replica = 0, output_tokens = 0;
  };

  explicit ScriptedFleet(int32_t replicas) {
    for (int32_t i = 0; i < replicas; ++i) {
      endpoints_.push_back({.replica = i, .url = "http://" + AddressOf(i), .address = AddressOf(i), .ready = true});
    }
  }
  ~ScriptedFleet() override { EXPECT_TRUE(open_.empty()) << open_.size() << " tickets were never ended"; }

  void SetReady(int32_t replica, bool ready) { endpoints_[static_cast<size_t>(replica)].ready = ready; }

  std::optional<Picked> Pick(const RouteRequest& request, std::span<const std::string> subset,
                             std::span<const int32_t>) override {
    picks.push_back({.prompt_tokens = request.prompt_tokens,
                     .keys = {request.keys.begin(), request.keys.end()},
                     .subset = {subset.begin(), subset.end()}});
    for (size_t looks = 0; looks < endpoints_.size(); ++looks) {
      const Endpoint& e = endpoints_[next_++ % endpoints_.size()];
      if (!e.ready || (!subset.empty() && std::find(subset.begin(), subset.end(), e.address) == subset.end())) continue;
      open_[++pick_] = e.replica;
      return Picked{.pick = pick_, .replica = e.replica, .url = e.url, .address = e.address};
    }
    return std::nullopt;
  }
  void Ended(uint64_t pick, int32_t output_tokens) override {
    ASSERT_EQ(open_.count(pick), 1u) << "pick " << pick << " is not open";
    ends.push_back({.replica = open_[pick], .output_tokens = output_tokens});
    open_.erase(pick);
  }
  std::vector<Endpoint> Endpoints() const override { return endpoints_; }
  int64_t ready() const override {
    return std::count_if(endpoints_.begin(), endpoints_.end(), [](const Endpoint& e) { return e.ready; });
  }

  void Answered(int32_t replica, bool well) override { answers.emplace_back(replica, well); }
  void AppendMetrics(results::PrometheusText* text) const override {
    text->Gauge("scripted_fleet", "A metric of this fleet.", 1);
  }

  std::vector<PickCall> picks;
  std::vector<EndCall> ends;
  std::vector<std::pair<int32_t, bool>> answers;

 private:
  std::vector<Endpoint> endpoints_;
  std::map<uint64_t, int32_t> open_;
  uint64_t pick_ = 0;
  size_t next_ = 0;
};

}  // namespace tactus::fleet
