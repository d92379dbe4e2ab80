// The viewers of GET /events: a thread takes the engine's live records while there is a viewer, and writes a frame to
// each viewer at most 20 times a second.
//
// Invariants: those of http/event_viewers.h; the engine waits for no viewer. Without viewers nothing is recorded.
//
// Thread rule: Answer and Stop on any thread.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "api/live_frames.h"
#include "base/clock.h"
#include "http/event_viewers.h"
#include "tactus/engine.h"
#include "tactus/live.h"

namespace tactus::serve {

class LiveViewers {
 public:
  static constexpr DurationNs kFrameNs = 50 * kMillisecond;
  static constexpr int kClassesEvery = 20;  // frames or intervals without one
  static constexpr int kIdleEvery = 40;     // intervals: a frame comes at least that often

  explicit LiveViewers(Clock& clock) : clock_(clock) {}
  ~LiveViewers() { Stop(); }
  LiveViewers(const LiveViewers&) = delete;

  // `engine` outlives this or its Stop. `hello`: the data of each viewer's first event. Call once, before Answer.
  void Start(Engine* engine, std::string hello);
  // http::EventViewers::Answer.
  Status Answer(const std::shared_ptr<http::Exchange>& exchange, http::Headers headers, const std::string& client,
                std::string owner) {
    return viewers_.Answer(exchange, std::move(headers), client, std::move(owner));
  }
  // Ends every stream and joins. Later calls do nothing.
  void Stop();

 private:
  void Run();
  void Watch();
  void Publish(api::LiveFrames* frames, bool classes);

  Clock& clock_;
  Engine* engine_ = nullptr;
  http::EventViewers viewers_;
  std::string prefix_tree_;  // the newest, as text; by the thread only
  std::thread thread_;
};

}  // namespace tactus::serve
