// Which works of streams are ordered, by vector clocks of streams, events and the host (Fidge, 1988; Mattern, 1989).
// Works run one after the other here, so a missing order between two streams shows in what they access, not in what
// happens. Each word remembers its last write and the reads since (shadow.h), as in FastTrack (Flanagan and Freund,
// 2009): of two unordered accesses the second one to run finds the first.
//
// All threads of the host count as one, so an order that is missing between two of them is not found. Under the
// device's mutex; UnorderedWork(), FirstUnordered() and IsSameWork() on any thread, while a work runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "stamp.h"

namespace tactus::compute::cuda::emulator {

// By stream: the number of its works that come before.
using Clock = std::vector<uint64_t>;
// The later of both, stream by stream; the earlier of both.
void Join(Clock* to, const Clock& from);
void Meet(Clock* to, const Clock& from);
uint64_t At(const Clock& clock, int stream);
// Work `ordinal` of the stream, from 1, comes before.
inline bool Covers(const Clock& clock, int stream, uint64_t ordinal) {
  return At(clock, stream) >= ordinal;
}
void Advance(Clock* clock, int stream, uint64_t ordinal);

// A work's place in the order.
struct WorkPoint {
  int stream = 0;
  uint64_t ordinal = 0;
  Clock after;  // the works that come before it, its stream's too
};

class Order {
 public:
  static Order& The();

  // Streams have numbers, which are used again.
  int NewStream();
  void EndStream(int stream) { free_streams_.push_back(stream); }
  // The stream's works so far, and `n` more.
  uint64_t works(int stream) const { return works_[static_cast<size_t>(stream)]; }
  void AddWorks(int stream, uint64_t n) { works_[static_cast<size_t>(stream)] += n; }

  // What the host has waited for.
  const Clock& host() const { return host_; }
  void HostWaits(const Clock& clock) { Join(&host_, clock); }
  void HostWaitsForAll() { host_ = works_; }

  // A work runs between the two calls. `known`: the works that come before all that has not run yet.
  void Begin(const char* name, const WorkPoint& point, const Clock& known);
  void End();

 private:
  Clock works_;
  std::vector<int> free_streams_;
  Clock host_;
};

// The name of the work with this serial (stamp.h), if nothing orders it with the one that runs; else null.
const char* UnorderedWork(uint64_t serial);
// The first stamp of such works; the greatest stamp if there are none.
Stamp FirstUnordered();
// Both serials are of one work, or of works that come before all that has not run yet.
bool IsSameWork(uint64_t a, uint64_t b);

}  // namespace tactus::compute::cuda::emulator
