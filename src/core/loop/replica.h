// One engine's core, put together here and nowhere else: predictor, scheduler, KV bookkeeping, recording and step loop.
// A server, a simulation, a replay and the tests differ in the executor, the clock and the sink that they connect.
//
// Thread rule: Create and Connect from the owner; afterwards as the loop says.
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
  // Names, knobs and sizes. Of `limits`, slot_capacity, predictor and step_time are filled in.
  SchedulerConfig scheduler;
  int32_t max_queue = 2048;   // sequences that may wait; beyond it a request is refused
  int32_t slot_capacity = 0;  // live sequences; 0: as slots() says
  bool prefix_caching = true;
  int64_t import_blocks = 0;  // of host memory beside limits.swap_blocks, for what comes from elsewhere alone
  bool list_entered = false;  // KvCacheConfig's, as the next
  bool remember_evicted = false;
  bool shared_prefixes = false;  // StepLoopConfig's
  Hash128 secret;                // of the block keys
  std::string model;             // part of every key
  std::vector<TokenId> model_stop_ids;
  std::vector<std::string> adapters;
  int32_t max_errors_in_a_row = 3;
  int32_t max_draft_tokens = 0;     // of one sequence in one step; with ReplicaParts::drafts
  bool guesses = false;             // some drafts are not sure
  bool forced_tokens = false;       // IntakeLimits'
  uint64_t seed = 0;                // of a noisy predictor
  bool true_lengths_known = false;  // requests are SimRequests: predictors may ask for the true length

  // Requests that pass the queue's limit have as much room again beyond it; there memory ends.
  int32_t slots() const {
    if (slot_capacity > 0) return slot_capacity;
    return max_queue * (AnyPassesQueue(scheduler) ? 2 : 1) + scheduler.limits.max_num_seqs;
  }
};

// What scheduling options ask for. Sizes that they do not say (context, KV memory, block size) are left to the caller.
// kInvalidArgument: a class of service that is not of the form.
Result<ReplicaConfig> ReplicaOf(const SchedulingOptions& options);

// What the scheduler is given. Pointers outlive the replica; all may be null.
struct ReplicaServices {
  const StepTimeModel* step_time = nullptr;
  LengthPredictor* predictor = nullptr;  // null: made by the name that config and preset ask for
  // `step_time` is corrected by what steps really take (corrected_step_times.h). Not with pipeline stages, where steps
  // also wait for each other.
  bool corrected = false;
  InjectedChoices injected;
  bool recorded = false;  // what the scheduler asks of `step_time` is kept for a tap
};

class Replica;
using TapFactory = std::function<Result<std::unique_ptr<LoopTap>>(Replica& replica, const ExecutorTraits& traits)>;

// What the loop works with; outlives the replica.
struct ReplicaParts {
  Executor* executor = nullptr;
  Clock* clock = nullptr;
  Clock* stopwatch = nullptr;  // see StepLoopParts, as the next four
  int32_t stopwatch_every = 1;
  EventSink* sink = nullptr;
  DraftSource* drafts = nullptr;  // with ReplicaConfig::max_draft_tokens
  std::function<std::string_view(TokenId)> token_bytes;
  std::function<Hash128(RequestHandle, int32_t choice, int32_t block)> generated_key;
  std::string about;  // configuration and seed, for the account of a broken invariant
  TapFactory tap;     // null: nothing is recorded. Needs ReplicaServices::recorded
};

class Replica {
 public:
  // Predictor and scheduler, so that a set-up that cannot work is refused before anything is loaded for it.
  static Result<std::unique_ptr<Replica>> Create(ReplicaConfig config, ReplicaServices services);
  // The rest, once. Passes the tap's errors on.
  Status Connect(ReplicaParts parts);
  // Ends the recording; not ok: it is incomplete. Once, when no pass runs any more.
  Status CloseTap() { return tap_ == nullptr ? Status() : tap_->Close(); }

  const ReplicaConfig& config() const { return config_; }
  const IntakeLimits& limits() const { return limits_; }
  const KvCacheConfig& kv_config() const { return kv_config_; }
  Scheduler& scheduler() { return *scheduler_; }
  const Scheduler& scheduler() const { return *scheduler_; }
  const CorrectedStepTimes* corrected() const { return corrected_.get(); }  // null: nothing is
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
