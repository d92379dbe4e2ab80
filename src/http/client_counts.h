// Counts the open sequences of each client, under a limit that shares the queue between clients.
//
// Enter returns Places; Release gives some of them back, and the destructor the rest. Split moves some of them to
// another owner, so that each part ends with its sequence. Invariant: a client's count is the sum of its Places, and
// never above the limit. Places may outlive the ClientCounts.
//
// Thread rule: ClientCounts on any thread; one Places on one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tactus/status.h"

namespace tactus::http {

// --max-streams-per-client, where 0 means three quarters of --max-queue: one client alone never fills the queue.
int64_t ClientLimit(int64_t max_streams_per_client, int64_t max_queue);

class ClientCounts {
  struct State;

 public:
  class Places {
   public:
    Places() = default;
    Places(Places&& other) noexcept { *this = std::move(other); }
    Places& operator=(Places&& other) noexcept;
    ~Places() { Release(count_); }

    int64_t count() const { return count_; }
    // Adds `more` places. Fails as Enter does, without releasing places.
    Status Add(int64_t more);
    // Gives back `places`, at most count().
    void Release(int64_t places);
    void ReleaseAll() { Release(count_); }
    // Moves `places`, at most count(), to the result.
    Places Split(int64_t places);

   private:
    friend class ClientCounts;
    std::shared_ptr<State> state_;
    std::string client_;
    int64_t count_ = 0;
  };

  explicit ClientCounts(int64_t limit);

  // kTooManyRequests with the numbers if this client has too many open sequences; kInvalidArgument if `places` exceed
  // the limit, so that waiting cannot help.
  Result<Places> Enter(const std::string& client, int64_t places = 1);
  int64_t open(const std::string& client) const;
  int64_t limit() const;

 private:
  struct State {
    explicit State(int64_t limit_in) : limit(limit_in) {}
    Status Add(const std::string& client, int64_t held, int64_t more);
    void Release(const std::string& client, int64_t places);

    const int64_t limit;
    mutable std::mutex mutex;
    std::map<std::string, int64_t> open;  // no entry: 0
  };
  const std::shared_ptr<State> state_;
};

}  // namespace tactus::http
