// The live records of the engine (tactus/live.h): a sink of the step loop that copies the events of a pass into a ring,
// which the watcher empties.
//
// Thread rule: OnStep on the engine thread; Watch and Take on any one thread at a time. OnStep is one load while there
// is no watcher. With one it copies without waiting; it allocates only for an outline of the prefix tree, which the
// watcher asks for. A record that finds the ring full is lost and counted.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "core/loop/events.h"
#include "tactus/live.h"

namespace tactus::engine {

class LiveRecords final : public core::EventSink, public LiveFeed {
 public:
  // At a thousand streams the events of eight steps, about a megabyte. Allocated by the first Watch.
  static constexpr size_t kRecords = 8192;
  static constexpr size_t kMostBranches = 48;  // of an outline
  // The first two are called on the engine thread, for passes in which a step has ended; the third by LiveRequests.
  // `capacity`: a power of two.
  using StatsNow = std::function<EngineStats()>;
  using PrefixesNow = std::function<PrefixOutline(size_t most)>;
  using LiveNow = std::function<std::vector<RequestHandle>()>;
  LiveRecords(StatsNow stats, PrefixesNow prefixes, LiveNow live, size_t capacity = kRecords)
      : stats_(std::move(stats)), prefixes_(std::move(prefixes)), live_(std::move(live)), capacity_(capacity) {}

  bool wants_chunks() const override { return true; }
  void OnStep(const core::StepEvents& events) override {
    if (watched_.load(std::memory_order_acquire)) Copy(events);
  }

  void Watch(bool on) override;
  int64_t Take(std::vector<LiveRecord>* records) override;
  std::optional<PrefixOutline> TakePrefixes() override;
  std::vector<RequestHandle> LiveRequests() const override { return live_(); }

 private:
  void Copy(const core::StepEvents& events);
  void CopyTokens(std::span<const core::TokenEvent> tokens);
  void CopyPrefixes();
  void Push(const LiveRecord& record);

  const StatsNow stats_;
  const PrefixesNow prefixes_;
  const LiveNow live_;
  const size_t capacity_;
  std::vector<LiveRecord> ring_;  // [capacity_] once watched
  std::atomic<bool> watched_{false};
  std::atomic<uint64_t> pushed_{0};  // by the engine thread
  std::atomic<uint64_t> taken_{0};   // by the watcher
  std::atomic<int64_t> lost_{0};
  std::atomic<bool> prefixes_asked_{false};
  std::mutex outline_mutex_;  // the engine thread only tries it
  std::optional<PrefixOutline> outline_;
};

}  // namespace tactus::engine
