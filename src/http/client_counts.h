// How many sequences each client has open, and the limit that all clients share the queue by.
//
// Who enters gets Places and holds them; they are given back piece by piece with Release, and the rest when the object
// goes. Split hands some of them to another owner, so that each part ends with the work that it stands for. Invariant:
// a client's count is the sum of its Places, and never above the limit. Places may outlive the ClientCounts.
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

// --max-streams-per-client, where 0 stands for three quarters of --max-queue: one client alone never fills the queue.
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
    // As many more. Fails as Enter does; what is held stays.
    Status Add(int64_t more);
    // Gives some back (at most what is held).
    void Release(int64_t places);
    void ReleaseAll() { Release(count_); }
    // Takes some out (at most what is held); they are the result's now.
    Places Split(int64_t places);

   private:
    friend class ClientCounts;
    std::shared_ptr<State> state_;
    std::string client_;
    int64_t count_ = 0;
  };

  explicit ClientCounts(int64_t limit);

  // kTooManyRequests with the numbers when this client has too much open; kInvalidArgument when `places` are more than
  // the limit, which no waiting helps.
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
    std::map<std::string, int64_t> open;  // no entry: none
  };
  const std::shared_ptr<State> state_;
};

}  // namespace tactus::http
