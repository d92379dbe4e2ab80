// The live records of an engine, as a test pushes them. Any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "tactus/live.h"

namespace tactus {

// Gives its watcher what a test has pushed.
class FakeFeed final : public LiveFeed {
 public:
  void Push(const LiveRecord& record) {
    std::lock_guard lock(mutex_);
    records_.push_back(record);
  }
  void Watch(bool on) override { watched = on; }
  int64_t Take(std::vector<LiveRecord>* records) override {
    std::lock_guard lock(mutex_);
    records->insert(records->end(), records_.begin(), records_.end());
    records_.clear();
    return 0;
  }
  std::optional<PrefixOutline> TakePrefixes() override {
    std::lock_guard lock(mutex_);
    return prefixes;
  }
  std::atomic<bool> watched{false};
  std::optional<PrefixOutline> prefixes;  // set before there is a watcher

 private:
  std::mutex mutex_;
  std::vector<LiveRecord> records_;
};

}  // namespace tactus
