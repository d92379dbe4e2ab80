// What batches may take of a serving engine: a share of its places and of its KV memory, and little of its queue. So a
// request of a client always finds room, and waits behind few prompts of batches; an engine that has nothing else to do
// still has its next prompt of a batch at hand. Beside others the share is smaller, because each line that generates
// makes every step of theirs longer.
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

#include "base/units.h"

namespace tactus::batches {

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

  // `live`: sequences in the engine, whoever's.
  explicit BackgroundRoom(BackgroundShare share, std::function<int64_t()> live = {})
      : share_(share), live_(std::move(live)) {}

  // False: it does not fit at the moment.
  bool Take(const Cost& cost);
  // The same cost as was taken: its first token has come; it has ended, after `output_tokens` of each sequence.
  void Began(const Cost& cost);
  void Ended(const Cost& cost, bool began, int64_t output_tokens);
  // False: Take would not succeed within the time.
  bool WaitFor(const Cost& cost, DurationNs timeout_ns);
  // Nothing is taken any more, and nobody waits.
  void Close();
  bool closed() const;
  // How long an answer of at most so many tokens is expected to be, by those that have ended.
  int64_t ExpectedTokens(int64_t most) const;

 private:
  bool Fits(const Cost& cost) const;  // with the mutex held

  const BackgroundShare share_;
  const std::function<int64_t()> live_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  Cost taken_{0, 0, 0};
  int64_t waiting_sequences_ = 0, waiting_tokens_ = 0;
  double expected_tokens_ = 256;  // twice the mean of the last ones
};

}  // namespace tactus::batches
