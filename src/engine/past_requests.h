// The requests of the last ten minutes, for simulations of this engine's own load.
//
// Thread rule: OnStep on the engine thread, the others on any. OnStep waits for none of them: what ended while another
// thread reads is added at a later call. Memory is bounded by kMost requests.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/loop/events.h"
#include "tactus/past_request.h"

namespace tactus::engine {

class PastRequests final : public core::EventSink {
 public:
  static constexpr DurationNs kKeptNs = 600 * kSecond;
  static constexpr size_t kMost = 1 << 14;
  static constexpr size_t kMostTextIds = 64;  // of a prompt

  // Before a request is queued: its prompt is identified on the caller's thread, not in the step loop.
  void Arriving(const Request& request);
  void Forget(const Request& request);  // it was not queued
  bool wants_tokens() const override { return false; }
  void OnStep(const core::StepEvents& events) override;
  // Those that ended within kKeptNs before `now_ns`, in the order of their arrival.
  std::vector<PastRequest> Since(TimeNs now_ns) const;

 private:
  struct Ended {
    TimeNs at_ns = 0;
    std::shared_ptr<const PastRequest> request;  // readers copy it without the lock
  };
  struct Unadded {
    std::shared_ptr<const Request> asked;
    TimeNs at_ns = 0;
    PastRequest request;
  };

  std::vector<Unadded> unadded_;  // engine thread
  mutable std::mutex mutex_;
  std::map<const Request*, std::vector<int64_t>> text_ids_;  // of requests that have not ended
  std::deque<Ended> ended_;
};

}  // namespace tactus::engine
