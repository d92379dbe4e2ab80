// What batches may take of a serving engine: a share of its places and of its KV memory, and little of its queue. So a
// request of a client always finds room, and waits behind few prompts of batches; an engine that has nothing else to do
// still has its next prompt of a batch at hand. Beside others the share is smaller, because each line that generates
// makes every step of theirs longer.
//
// A line that finds no room queues, and while the queue's first does not fit none behind it takes: else lines of long
// prompts would never find the room that those of short ones leave.
//
// Thread rule: any thread. Invariant: nothing is taken beyond the share of the moment, but for one request that alone
// is larger.
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
  int64_t kv_tokens = 0;           // that they are expected to hold; 0: no limit
  int64_t waiting_sequences = 64;  // of those, that have no token yet
  int64_t waiting_tokens = 1024;   // ... and their prompts: about the next two steps
  double beside_others = 0.25;     // of the first two, while others have something in the engine
};

class BackgroundRoom {
 public:
  struct Cost {
    int64_t sequences = 1, prompt_tokens = 0, kv_tokens = 0;
  };

  // Stands for a place in the queue: one thread at a time. Null: has none, and takes where none queues.
  using Asker = const void*;

  // `live`: sequences in the engine, whoever's. `clock` outlives it.
  BackgroundRoom(BackgroundShare share, Clock& clock, std::function<int64_t()> live = {})
      : share_(share), live_(std::move(live)), clock_(clock) {}

  // False: it does not fit at the moment, or is not its turn; `asker` is in the queue then.
  bool Take(const Cost& cost, Asker asker = nullptr);
  // The same cost as was taken: its first token has come; it has ended, after `output_tokens` of each sequence.
  void Began(const Cost& cost);
  void Ended(const Cost& cost, bool began, int64_t output_tokens);
  // False: Take would not succeed within the time; `asker` is in the queue then. It leaves it when it takes, by Leave,
  // and when it has not asked for a while.
  bool WaitFor(const Cost& cost, DurationNs timeout_ns, Asker asker = nullptr);
  void Leave(Asker asker);
  // Nothing is taken any more, and no thread waits.
  void Close();
  bool closed() const;
  // How long an answer of at most so many tokens is expected to be, by those that have ended.
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
  void Queue(Asker asker, bool waits);  // a new one to the end
  void DropGone();

  const BackgroundShare share_;
  const std::function<int64_t()> live_;
  Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  std::vector<Waiter> queue_;  // the first to come first
  Cost taken_{0, 0, 0};
  int64_t waiting_sequences_ = 0, waiting_tokens_ = 0;
  double expected_tokens_ = 256;  // twice the mean of the last ones
};

}  // namespace tactus::offline
