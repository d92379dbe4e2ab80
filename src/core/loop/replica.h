// The core of one engine: predictor, scheduler, KV bookkeeping, recording and step loop, assembled only here. A server,
// a simulation, a replay and the tests differ in the executor, the clock and the sink that they connect.
//
// Thread rule: Create and Connect on the owner's thread; then as in step_loop.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/loop/corrected_step_times.h"
#include "core/loop/recording_step_times.h"
#include "core/loop/step_loop.h"
#include "core/loop/tap.h"
#include "tactus/scheduling_options.h"

namespace tactus::core {

struct ReplicaConfig {
  // Names, knobs and sizes. Create fills in limits.slot_capacity, predictor and step_time.
  SchedulerConfig scheduler;
  int32_t max_queue = 2048;   // most waiting sequences; further requests are refused
  int32_t slot_capacity = 0;  // most live sequences; 0: computed by slots()
  bool prefix_caching = true;
  int64_t import_blocks = 0;  // host blocks for imports alone, besides limits.swap_blocks
  bool list_entered = false;  // these two: as in KvCacheConfig
  bool remember_evicted = false;
  bool shared_prefixes = false;  // these two: as in StepLoopConfig
  bool keep_timelines = true;
  bool lean = false;  // one of many replicas in a process, as in KvCacheConfig
  Hash128 secret;     // of the block keys
  std::string model;  // part of every key
  std::vector<TokenId> model_stop_ids;
  std::vector<std::string> adapters;
  int32_t max_errors_in_a_row = 3;
  int32_t max_draft_tokens = 0;     // most of one sequence in one step; needs ReplicaParts::drafts
  bool guesses = false;             // some drafts are not sure
  bool forced_tokens = false;       // as in IntakeLimits
  uint64_t seed = 0;                // of the noisy predictor
  bool true_lengths_known = false;  // requests are SimRequests: predictors may read the true length

  // Requests exempt from max_queue get max_queue further slots; this bounds the memory.
  int32_t slots() const {
    if (slot_capacity > 0) return slot_capacity;
    return max_queue * (AnyPassesQueue(scheduler) ? 2 : 1) + scheduler.limits.max_num_seqs;
  }
};

// The configuration for these scheduling options. The caller sets the sizes that they lack (context, KV memory, block
// size). kInvalidArgument: a malformed class of service.
Result<ReplicaConfig> ReplicaOf(const SchedulingOptions& options);

// The services of the scheduler. Pointers outlive the replica; all may be null.
struct ReplicaServices {
  const StepTimeModel* step_time = nullptr;
  LengthPredictor* predictor = nullptr;  // null: created by the name in the configuration or preset
  // Correct `step_time` by measured step times (corrected_step_times.h). Not with pipeline stages, where steps also
  // wait for each other.
  bool corrected = false;
  InjectedChoices injected;
  bool recorded = false;  // store the scheduler's reads of `step_time` for a tap
};

class Replica;
using TapFactory = std::function<Result<std::unique_ptr<LoopTap>>(Replica& replica, const ExecutorTraits& traits)>;

// The parts that the loop uses; they outlive the replica.
struct ReplicaParts {
  Executor* executor = nullptr;
  Clock* clock = nullptr;
  Clock* stopwatch = nullptr;  // as in StepLoopParts, like the next four
  int32_t stopwatch_every = 1;
  EventSink* sink = nullptr;
  DraftSource* drafts = nullptr;  // needs ReplicaConfig::max_draft_tokens
  std::function<std::string_view(TokenId)> token_bytes;
  std::function<Hash128(RequestHandle, int32_t choice, int32_t block)> generated_key;
  std::string about;  // configuration and seed, for crash reports
  TapFactory tap;     // null: no recording. Needs ReplicaServices::recorded
};

class Replica {
 public:
  // Creates predictor and scheduler, so that an invalid configuration is refused before anything is loaded.
  static Result<std::unique_ptr<Replica>> Create(ReplicaConfig config, ReplicaServices services);
  // Creates the rest. Call once. Returns the tap's errors.
  Status Connect(ReplicaParts parts);
  // Ends the recording; not ok: it is incomplete. Call once, after the last pass.
  Status CloseTap() { return tap_ == nullptr ? Status() : tap_->Close(); }

  const ReplicaConfig& config() const { return config_; }
  const IntakeLimits& limits() const { return limits_; }
  const KvCacheConfig& kv_config() const { return kv_config_; }
  Scheduler& scheduler() { return *scheduler_; }
  const Scheduler& scheduler() const { return *scheduler_; }
  const CorrectedStepTimes* corrected() const { return corrected_.get(); }  // null: not corrected
  RecordingStepTimes* step_times() { return step_times_.get(); }            // null: not recorded, or no step-time model
  // After Connect.
  KvCache& kv() { return *kv_; }
  StepLoop& loop() { return *loop_; }
  const StepLoop& loop() const { return *loop_; }

 private:
  explicit Replica(ReplicaConfig config) : config_(std::move(config)) {}

  ReplicaConfig config_;
  IntakeLimits limits_;
  KvCacheConfig kv_config_;
  std::unique_ptr<LengthPredictor> own_predictor_;
  LengthPredictor* predictor_ = nullptr;
  std::unique_ptr<CorrectedStepTimes> corrected_;
  std::unique_ptr<RecordingStepTimes> step_times_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<LoopTap> tap_;
  std::unique_ptr<StepLoop> loop_;
};

}  // namespace tactus::core
