// Chooses the replica for an HTTP request of a data plane, and tracks the requests in flight and the memory they use.
// Independent of gRPC and of how replicas are watched: that is behind EndpointSource.
//
// Thread rule: any thread, also concurrently.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fleet/balance/balancer.h"
#include "fleet/router/endpoint.h"
#include "fleet/router/request_view.h"
#include "results/obs/prometheus_text.h"

namespace tactus::fleet {

// The fleet behind the picker.
class EndpointSource {
 public:
  virtual ~EndpointSource() = default;
  // Chooses a replica and counts the request there; none: no permitted replica is ready. `subset`: addresses that may
  // be picked; empty: all.
  virtual std::optional<Picked> Pick(const RouteRequest& request, std::span<const std::string> subset,
                                     std::span<const int32_t> excluded) = 0;
  // Call once for each pick. output_tokens -1: the request failed, or the number is not known.
  virtual void Ended(uint64_t pick, int32_t output_tokens) = 0;
  // Reports whether the replica served a request well.
  virtual void Answered(int32_t replica, bool well) = 0;
  virtual std::vector<Endpoint> Endpoints() const = 0;
  virtual int64_t ready() const = 0;
  virtual void AppendMetrics(results::PrometheusText* text) const = 0;
};

struct PickerOptions {
  int64_t max_body_bytes = int64_t{16} << 20;
  int64_t max_body_total_bytes = int64_t{1} << 30;
  int64_t max_requests_per_replica = 0;  // 0: any number
  int64_t fallbacks = 0;
  DurationNs body_timeout_ns = 0;  // from a request's headers to its body's end, if the picker waits for it; 0: none
  Hash128 secret;                  // for the keys of prompts
};

// A response from the picker itself, instead of a replica's.
struct Refusal {
  enum class Reason { kNoneReady, kNotInSubset, kTooManyRequests, kBodyTooLarge, kBodiesTooLarge, kBodyLate };
  static constexpr int kReasons = 6;
  Reason reason = Reason::kNoneReady;
  int status = 503;
  std::string message;
};

struct Choice {
  std::optional<Refusal> refusal;
  uint64_t pick = 0;
  int32_t replica = 0;
  std::string address;      // the replica's
  std::string destination;  // passed to the data plane: the address, then the fallbacks
};

class Picker {
 public:
  // kUnseen: a good response began, and the data plane does not report how it ended.
  enum class Outcome { kCompleted, kFailed, kAborted, kUnseen };
  static constexpr int kOutcomes = 4;

  Picker(EndpointSource& source, const PickerOptions& options, Clock& clock);
  Picker(const Picker&) = delete;
  Picker& operator=(const Picker&) = delete;

  const PickerOptions& options() const { return options_; }
  // `subset`: entries "ip:port" or "ip" that may be picked; not set: any.
  Choice Choose(const RequestView& view, const std::optional<std::vector<std::string>>& subset);
  // The data plane used `address` instead: moves the count there; false: no such replica, or not ready.
  bool Moved(const RequestView& view, const std::string& address, Choice* choice);
  // The replica has begun to answer.
  void Answered(const Choice& choice, bool well) { source_.Answered(choice.replica, well); }
  void Ended(const Choice& choice, int32_t output_tokens, Outcome outcome);

  // Reserves room for bytes of a held body. Every reserved byte must be returned.
  bool TakeRoom(int64_t bytes);
  void GiveRoom(int64_t bytes) { held_bytes_.fetch_sub(bytes); }
  // Makes a refusal and counts it.
  Refusal Refuse(Refusal::Reason reason);
  void StreamBegan() { streams_.fetch_add(1); }
  void StreamEnded() { streams_.fetch_sub(1); }
  int64_t streams() const { return streams_.load(); }
  int64_t outstanding() const { return outstanding_.load(); }

  std::string MetricsText() const;

 private:
  std::string Destination(const Picked& picked, std::span<const std::string> subset) const;

  EndpointSource& source_;
  const PickerOptions options_;
  Clock& clock_;
  std::atomic<int64_t> streams_{0}, outstanding_{0}, held_bytes_{0}, moved_{0};
  std::atomic<int64_t> refused_[Refusal::kReasons] = {}, ended_[kOutcomes] = {};
  mutable std::mutex mutex_;  // guards pick_seconds_
  results::BucketHistogram pick_seconds_;
};

}  // namespace tactus::fleet
