// Which works of streams are ordered, by vector clocks of streams, events and the host (Fidge, 1988; Mattern, 1989).
// Works run one after the other here, so a missing order between two streams is found by what they access, not by what
// happens.
//
// All threads of the host count as one, so an order that is missing between two of them is not found. Under the
// device's mutex; UnorderedWork() on any thread, while a work runs.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "stamp.h"

namespace tactus::compute::cuda::emulator {

// By stream: the number of its works that come before.
using Clock = std::vector<uint64_t>;
void Join(Clock* to, const Clock& from);
bool Covers(const Clock& clock, int stream, uint64_t ordinal);

class Order {
 public:
  static Order& The();

  // Streams have numbers, which are used again.
  int NewStream();
  void EndStream(int stream);
  // The next work of the stream, from 1.
  uint64_t NextWork(int stream) { return ++works_[static_cast<size_t>(stream)]; }

  // What the host has waited for.
  Clock& host() { return host_; }
  // The host has waited for everything.
  void HostSynchronizes() { host_ = works_; }

  // A work runs between the two calls. `after`: the works that come before it, its stream's included.
  void Begin(const char* name, int stream, uint64_t ordinal, const Clock& after);
  void End();
  // Forgets the works that come before all that can still run; `pending`: the next work of each stream.
  void Prune(const std::vector<const Clock*>& pending);
  size_t remembered() const { return done_.size(); }

 private:
  struct Done {
    const char* name;
    int stream;
    uint64_t ordinal;
    uint64_t first, end;  // serials
  };
  std::vector<uint64_t> works_;  // by stream
  std::vector<int> free_streams_;
  Clock host_;
  std::deque<Done> done_;  // in order of their serials
  Done running_{};
};

// The name of the work with this serial, if nothing orders it with the one that runs; else null.
const char* UnorderedWork(uint64_t serial);
// The first stamp of such works; the greatest stamp if there are none.
Stamp FirstUnordered();

}  // namespace tactus::compute::cuda::emulator
