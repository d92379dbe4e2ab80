// Limits what batches use of a serving engine: a share of its sequences and of its KV memory, and a little of its
// queue. So an interactive request always finds room, and waits behind few batch prompts, while an otherwise idle
// engine always has the next batch prompt queued. Beside interactive requests the share is smaller, because every batch
// line that generates makes their steps longer.
//
// A line without room enters a FIFO queue, and while its first entry does not fit, no later one is admitted: otherwise
// lines with long prompts would never find the room that short ones leave.
//
// Thread rule: any thread. Invariant: no more than the current share is taken, except by a single request that is
// larger than it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/units.h"

namespace tactus::offline {

struct BackgroundShare {
  int64_t sequences = 128;         // in the engine
  int64_t kv_tokens = 0;           // expected KV of these; 0: no limit
  int64_t waiting_sequences = 64;  // of those, without a token yet
  int64_t waiting_tokens = 1024;   // and the prompt tokens of these: about the next two steps
  double beside_others = 0.25;     // factor on the first two while interactive requests are in the engine
};

class BackgroundRoom {
 public:
  struct Cost {
    int64_t sequences = 1, prompt_tokens = 0, kv_tokens = 0;
  };

  // Identifies a place in the queue, used by one thread at a time. Null: no place; takes only when the queue is empty.
  using Asker = const void*;

  // `live`: number of all sequences in the engine. `clock` outlives this.
  BackgroundRoom(BackgroundShare share, Clock& clock, std::function<int64_t()> live = {})
      : share_(share), live_(std::move(live)), clock_(clock) {}

  // False: the request does not fit now, or is not first in the queue; `asker` is then queued.
  bool Take(const Cost& cost, Asker asker = nullptr);
  // Call with the cost that was taken: Began after the first token; Ended at the end, after `output_tokens` of each
  // sequence.
  void Began(const Cost& cost);
  void Ended(const Cost& cost, bool began, int64_t output_tokens);
  // False: Take would not succeed within the time; `asker` is then queued. It leaves the queue by a successful Take, by
  // Leave, or after not calling for a while.
  bool WaitFor(const Cost& cost, DurationNs timeout_ns, Asker asker = nullptr);
  void Leave(Asker asker);
  // After this nothing can be taken, and no thread waits.
  void Close();
  bool closed() const;
  // Expected length of an answer limited to `most` tokens, by the answers that have ended.
  int64_t ExpectedTokens(int64_t most) const;

 private:
  struct Waiter {
    Asker asker = nullptr;
    bool waits = false;  // in WaitFor
    TimeNs last_asked = 0;
  };
  // With the mutex held.
  bool Fits(const Cost& cost) const;
  bool IsNext(Asker asker) const { return queue_.empty() || queue_.front().asker == asker; }
  std::vector<Waiter>::iterator Find(Asker asker);
  void Queue(Asker asker, bool waits);  // a new one is appended
  void DropGone();

  const BackgroundShare share_;
  const std::function<int64_t()> live_;
  Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::vector<Waiter> queue_;  // first in, first out
  Cost taken_{0, 0, 0};
  int64_t waiting_sequences_ = 0, waiting_tokens_ = 0;
  double expected_tokens_ = 256;  // twice the mean of the last answers
};

}  // namespace tactus::offline
