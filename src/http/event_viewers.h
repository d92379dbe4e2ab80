// The viewers of a route that streams what this server does (GET /events): a "hello" to each, then frames, and an "end"
// when the server stops.
//
// Invariants: at most kMost viewers, and kMostOfOne of one client. A viewer that reads too slowly loses whole frames,
// and its next frame says how many; its unread bytes are bounded. Nothing waits for a viewer.
//
// Thread rule: any thread; frames are written by one thread at a time.
#pragma once

#include <compare>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "http/client_counts.h"
#include "http/server.h"

namespace tactus::http {

class EventViewers {
 public:
  static constexpr size_t kMost = 16;
  static constexpr int64_t kMostOfOne = 8;                // one client alone does not take every place
  static constexpr int64_t kMostUnsentBytes = 256 << 10;  // of one viewer

  // Viewers of one kind get the same frame.
  struct Kind {
    std::string owner;   // of the requests whose ids the viewer may read
    bool whole = false;  // the frame says everything, because the viewer is new or has lost frames
    auto operator<=>(const Kind&) const = default;
  };

  // Viewers are accepted from now on, until Stop. `hello`: the data of each viewer's first event.
  void Start(std::string hello);
  // Answers the request with a stream, or a HEAD with its head. An error: the exchange is untouched, and there are too
  // many viewers, or this server starts or stops. `client`: who asks.
  Status Answer(const std::shared_ptr<Exchange>& exchange, Headers headers, const std::string& client,
                std::string owner);
  // Ends every stream with an "end" event that has this reason. Later calls do nothing.
  void Stop(std::string_view reason);
  // Ends every stream without an event; further viewers are accepted.
  void EndAll();

  bool empty() const;
  bool stopped() const;
  // Waits for a viewer; false: stopped.
  bool WaitForViewer();
  // Waits for that time at most; false: stopped.
  bool Wait(DurationNs time_ns);
  // The next frame says everything to everyone.
  void SayEverything();
  // Whether the next frame says everything to someone.
  bool has_whole() const;

  // Counts a frame for every viewer, and returns the kinds of those who get it.
  std::set<Kind> BeginFrame();
  // Writes the frame to those of BeginFrame who are still there. `members`: of a JSON object, without its braces.
  void EndFrame(const std::function<std::string_view(const Kind&)>& members);

 private:
  struct Viewer {
    Kind kind() const { return {owner, whole || lost_frames > 0}; }  // things may have changed in lost frames

    std::shared_ptr<Exchange> exchange;
    std::string owner;
    ClientCounts::Places place;
    int64_t frame = 0, lost_frames = 0;  // frames so far; lost ones since the last that was written
    bool whole = true;
    bool due = false;  // gets the frame that has begun
  };
  void Leave(const Exchange* exchange);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string hello_;
  ClientCounts clients_{kMostOfOne};
  std::vector<Viewer> viewers_;
  bool started_ = false, stopped_ = false;
};

}  // namespace tactus::http
