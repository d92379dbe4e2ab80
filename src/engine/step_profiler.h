// Measures how long an executor's steps take: a design of steps over (prompt tokens, their context, decodes, their
// contexts), in an order in which every beginning covers the space, each step repeated and its median kept.
//
// Sequences are made up and their KV is one computed stretch of text, copied; memory traffic is what it would be, since
// every sequence has blocks of its own. They lie side by side, as the allocator of core/kv hands them out to a server
// whose cache is not full; blocks strewn over a large cache cost a small step up to twice its time where pages are
// small. Thread rule: one thread; the executor may own others.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/executor.h"
#include "cost/step_table.h"

namespace tactus::engine {

// What the executor was made for.
struct ProfileLimits {
  int64_t max_step_tokens = 0;
  int32_t max_decodes = 0;  // and one prompt beside them: the executor takes a step of max_decodes + 1 items
  int32_t max_context = 0;  // tokens of one sequence, its new ones included
  int64_t num_blocks = 0;
  int32_t block_size = 16;
  int64_t vocab_size = 0;
  int32_t seed_tokens = 256;  // of text that is really computed; the rest of the KV are copies of it
};

struct ProfilePoint {
  int32_t prefill_tokens = 0, prefill_context = 0;
  int32_t decodes = 0;
  int32_t decode_context = 0;  // of each, its own token included
  bool operator==(const ProfilePoint&) const = default;
};

// Corners first (the least and the most of everything, alone and together), then a low-discrepancy sequence,
// logarithmic in every axis: `count` different points within the limits, or fewer where there are not so many.
std::vector<ProfilePoint> DesignProfile(const ProfileLimits& limits, int32_t count);

class StepProfiler {
 public:
  // `executor`: fresh, and outlives this.
  StepProfiler(Executor* executor, const ProfileLimits& limits);

  // Runs the step, after once to warm up, three to nine times until it has taken `enough_ns` in all, and returns the
  // median; once only when that takes eight times as long. An executor error is passed on.
  Result<cost::StepSample> Measure(const ProfilePoint& point, DurationNs enough_ns);
  // The same in parts, so that a point's runs can be spread over time: appends the times of this visit; the sample of
  // all of them.
  Status Visit(const ProfilePoint& point, DurationNs enough_ns, std::vector<DurationNs>* times);
  static cost::StepSample SampleOf(const ProfilePoint& point, std::vector<DurationNs> times);  // not empty

 private:
  Result<DurationNs> Run(const StepPlan& plan);
  Status FillBlocks(int64_t blocks);  // so that the first `blocks` hold KV
  void AddTable(SlotId slot, int64_t first_block, int32_t tokens, StepPlan* plan);

  Executor& executor_;
  const ProfileLimits limits_;
  std::vector<BlockId> order_;  // all blocks, shuffled
  int64_t filled_ = 0;
  StepId next_step_ = 0;
  StepPlan plan_;
  // Shared with the executor's threads, which may signal after the last step was polled.
  struct WakeUp {
    std::mutex mutex;
    std::condition_variable condition;
    bool signalled = false;
  };
  std::shared_ptr<WakeUp> wake_ = std::make_shared<WakeUp>();
};

}  // namespace tactus::engine
