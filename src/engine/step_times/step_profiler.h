// Measures how long an executor's steps take: a design of steps over (prompt tokens, their context, decodes, their
// contexts), in an order in which every prefix covers the space; each step is repeated and its median kept.
//
// Sequences are synthetic and their KV consists of copies of one computed piece of text; memory traffic is realistic,
// since every sequence has its own blocks. They are contiguous, as the allocator of core/kv assigns them while the
// cache is not full; blocks scattered over a large cache slow a small step by up to 2x where pages are small. Thread
// rule: one thread; the executor may own others.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/executor.h"
#include "cost/step_tables/step_table.h"

namespace tactus::engine {

// The limits that the executor was created for.
struct ProfileLimits {
  int64_t max_step_tokens = 0;
  int32_t max_decodes = 0;  // the executor must accept a step of max_decodes + 1 items: these and one prompt
  int32_t max_context = 0;  // tokens of one sequence, including its new ones
  int64_t num_blocks = 0;
  int32_t block_size = 16;
  int64_t vocab_size = 0;
  int32_t seed_tokens = 256;  // of text that is really computed; the rest of the KV is copies of it
};

struct ProfilePoint {
  int32_t prefill_tokens = 0, prefill_context = 0;
  int32_t decodes = 0;
  int32_t decode_context = 0;  // of each, including its own token
  bool operator==(const ProfilePoint&) const = default;
};

// Corners first (the least and the most of everything, alone and together), then a low-discrepancy sequence,
// logarithmic in every axis: `count` different points within the limits, or all if there are fewer.
std::vector<ProfilePoint> DesignProfile(const ProfileLimits& limits, int32_t count);

class StepProfiler {
 public:
  // `executor`: fresh; outlives this.
  StepProfiler(Executor* executor, const ProfileLimits& limits);

  // Runs the step once to warm up, then three to nine times until the runs have taken `enough_ns` in all, and returns
  // the median. A first run of 8 * enough_ns or more is the only one. If the executor has two steps in flight, runs
  // follow each other as in a server: one is launched while the one before it is computed. An executor error is
  // returned.
  Result<cost::StepSample> Measure(const ProfilePoint& point, DurationNs enough_ns);
  // The same in parts, so that a point's runs can be spread over time: Visit appends the times of one visit; SampleOf
  // makes the sample of all times.
  Status Visit(const ProfilePoint& point, DurationNs enough_ns, std::vector<DurationNs>* times);
  static cost::StepSample SampleOf(const ProfilePoint& point, std::vector<DurationNs> times);  // not empty

 private:
  Result<DurationNs> Run(const StepPlan& plan);
  Result<DurationNs> Wait();  // for the oldest submitted step: its time
  Status RunAgain(DurationNs enough_ns, DurationNs long_ns, std::vector<DurationNs>* times);
  Status FillBlocks(int64_t blocks);  // until the first `blocks` hold KV
  void AddTable(SlotId slot, int64_t first_block, int32_t tokens, StepPlan* plan);

  Executor& executor_;
  const ProfileLimits limits_;
  int64_t filled_ = 0;
  StepId next_step_ = 0;
  StepPlan plan_, again_;  // again_: the same step, in flight beside plan_
  // Shared with the executor's threads, which may signal after the last step was polled.
  struct WakeUp {
    std::mutex mutex;
    std::condition_variable condition;
    bool signalled = false;
  };
  std::shared_ptr<WakeUp> wake_ = std::make_shared<WakeUp>();
};

}  // namespace tactus::engine
