// The viewers of GET /events: a thread takes the engine's live records while there is a viewer, and writes a frame to
// each viewer at most 20 times a second.
//
// Invariants: a viewer that reads too slowly loses whole frames, and its next frame says how many; its unread bytes are
// bounded; the engine waits for no viewer. Without viewers nothing is recorded.
//
// Thread rule: Join and Stop on any thread.
#pragma once

#include <compare>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/live_frames.h"
#include "base/clock.h"
#include "http/server.h"
#include "tactus/engine.h"
#include "tactus/live.h"

namespace tactus::serve {

class LiveViewers {
 public:
  static constexpr size_t kMostViewers = 16;
  static constexpr DurationNs kFrameNs = 50 * kMillisecond;
  static constexpr int64_t kMostUnsentBytes = 256 << 10;  // of one viewer
  static constexpr int kClassesEvery = 20;                // frames or intervals without one
  static constexpr int kIdleEvery = 40;                   // intervals: a frame comes at least that often

  explicit LiveViewers(Clock& clock) : clock_(clock) {}
  ~LiveViewers() { Stop(); }
  LiveViewers(const LiveViewers&) = delete;

  // `engine` outlives this or its Stop. `hello`: the data of each viewer's first event. Call once, before Join.
  void Start(Engine* engine, std::string hello);
  // Answers the request with a stream. `owner`: of the requests whose ids the viewer may read. False, and the exchange
  // is untouched: there are kMostViewers, or Stop was called.
  bool Join(std::shared_ptr<http::Exchange> exchange, http::Headers headers, std::string owner);
  // Ends every stream and joins. Later calls do nothing.
  void Stop();

 private:
  // Viewers of one kind get the same text.
  struct Kind {
    std::string owner;
    bool whole = false;
    auto operator<=>(const Kind&) const = default;
  };
  struct Viewer {
    // Streams may have changed in lost frames.
    Kind kind() const { return {owner, whole || lost_frames > 0}; }

    std::shared_ptr<http::Exchange> exchange;
    std::string owner;
    int64_t frame = 0, lost_frames = 0;  // frames so far; lost ones since the last that was written
    bool whole = true;                   // the next frame has every stream
    bool due = false;                    // gets the frame that is being made
  };
  void Run();
  void Watch(std::unique_lock<std::mutex>* lock);
  void EndAll(std::unique_lock<std::mutex>* lock);  // the lock is held, except while it ends them
  void Publish(api::LiveFrames* frames, bool classes);
  void Leave(const http::Exchange* exchange);

  Clock& clock_;
  Engine* engine_ = nullptr;
  std::string hello_;
  std::string prefix_tree_;  // the newest, as text; by the thread only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Viewer> viewers_;  // under mutex_
  bool stopping_ = true;         // under mutex_; also before Start
  std::thread thread_;
};

}  // namespace tactus::serve
