#include "core/loop/replica.h"

#include <utility>

#include "base/check.h"
#include "core/predict/predictor.h"

namespace tactus::core {
namespace {

IntakeLimits IntakeLimitsOf(const ReplicaConfig& c) {
  const SchedulerLimits& l = c.scheduler.limits;
  IntakeLimits limits;
  limits.max_model_len = l.max_model_len;
  limits.max_num_seqs = l.max_num_seqs;
  limits.max_queue = c.max_queue;
  limits.block_size = l.block_size;
  limits.blocks_total = l.blocks_total;
  limits.prefix_caching = c.prefix_caching;
  limits.secret = c.secret;
  limits.model = c.model;
  limits.model_stop_ids = c.model_stop_ids;
  limits.adapters = c.adapters;
  limits.forced_tokens = c.forced_tokens;
  limits.classes = l.classes;
  return limits;
}

KvCacheConfig KvConfigOf(const ReplicaConfig& c) {
  const SchedulerLimits& l = c.scheduler.limits;
  KvCacheConfig kv;
  kv.num_blocks = l.blocks_total;
  kv.block_size = l.block_size;
  kv.max_slots = c.slots();
  kv.max_blocks_per_slot = (l.max_model_len + l.block_size - 1) / l.block_size;
  kv.prefix_caching = c.prefix_caching;
  kv.swap_blocks = l.swap_blocks + c.import_blocks;
  kv.import_blocks = c.import_blocks;
  kv.list_entered = c.list_entered;
  kv.remember_evicted = c.remember_evicted;
  kv.lean = c.lean;
  return kv;
}

}  // namespace

Result<ReplicaConfig> ReplicaOf(const SchedulingOptions& o) {
  ReplicaConfig config;
  SchedulerConfig& c = config.scheduler;
  c.preset = o.scheduler;
  c.order = o.order;
  c.admission = o.admission;
  c.composition = o.composition;
  c.budget = o.budget;
  c.preemption = o.preemption;
  c.gate = o.gate;
  c.predictor = o.predictor;
  c.limits.max_num_seqs = static_cast<int32_t>(o.max_num_seqs);
  c.limits.token_budget = o.token_budget;
  c.limits.tbt_slo_ns = o.tbt_slo.ns;
  c.limits.watermark = o.watermark;
  c.limits.reserve_full = o.reserve_full;
  c.limits.unlimited_steps = o.step_limit == "none";
  c.limits.policy = o.policy;
  TACTUS_ASSIGN_OR_RETURN(c.limits.classes, ParseServiceClasses(o.slo_class));
  config.max_queue = static_cast<int32_t>(o.max_queue);
  return config;
}

Result<std::unique_ptr<Replica>> Replica::Create(ReplicaConfig config, ReplicaServices services) {
  std::unique_ptr<Replica> r(new Replica(std::move(config)));
  SchedulerConfig sc = r->config_.scheduler;
  sc.limits.slot_capacity = r->config_.slots();
  r->predictor_ = services.predictor;
  if (services.predictor == nullptr) {
    TACTUS_ASSIGN_OR_RETURN(const std::string name, Scheduler::PredictorFor(sc));
    TACTUS_ASSIGN_OR_RETURN(r->own_predictor_, MakePredictor(name, {.slot_capacity = sc.limits.slot_capacity,
                                                                    .max_model_len = sc.limits.max_model_len,
                                                                    .seed = r->config_.seed,
                                                                    .true_lengths_known = r->config_.true_lengths_known,
                                                                    .lean = r->config_.lean}));
    r->predictor_ = r->own_predictor_.get();
  }
  sc.limits.predictor = r->predictor_;
  sc.limits.step_time = services.step_time;
  if (services.corrected && services.step_time != nullptr && sc.limits.pipeline_steps == 1) {
    r->corrected_ = std::make_unique<CorrectedStepTimes>(services.step_time);
    sc.limits.step_time = r->corrected_.get();
  }
  if (services.recorded && services.step_time != nullptr) {
    r->step_times_ = std::make_unique<RecordingStepTimes>(sc.limits.step_time);
    sc.limits.step_time = r->step_times_.get();
  }
  TACTUS_ASSIGN_OR_RETURN(r->scheduler_, Scheduler::Create(sc, std::move(services.injected)));
  r->limits_ = IntakeLimitsOf(r->config_);
  for (size_t c = 0; c <= sc.limits.classes.size(); ++c) {
    if (!r->scheduler_->LimitsQueue(static_cast<uint8_t>(c))) r->limits_.passes_queue |= uint64_t{1} << c;
  }
  r->kv_config_ = KvConfigOf(r->config_);
  return r;
}

Status Replica::Connect(ReplicaParts parts) {
  TACTUS_CHECK(loop_ == nullptr);
  // A recording without the results of the step-time model could not be replayed.
  TACTUS_CHECK(!parts.tap || step_times_ != nullptr || scheduler_->config().limits.step_time == nullptr);
  kv_ = std::make_unique<KvCache>(kv_config_);
  if (parts.tap) {
    TACTUS_ASSIGN_OR_RETURN(tap_, parts.tap(*this, parts.executor->traits()));
  }
  StepLoopParts loop;
  loop.scheduler = scheduler_.get();
  loop.executor = parts.executor;
  loop.predictor = predictor_;
  loop.kv = kv_.get();
  loop.clock = parts.clock;
  loop.stopwatch = parts.stopwatch;
  loop.stopwatch_every = parts.stopwatch_every;
  loop.sink = parts.sink;
  loop.drafts = parts.drafts;
  loop.tap = tap_.get();
  loop.corrected = corrected_.get();
  loop.step_times = step_times_.get();
  loop.about = std::move(parts.about);
  loop.token_bytes = std::move(parts.token_bytes);
  loop.generated_key = std::move(parts.generated_key);
  loop_ = std::make_unique<StepLoop>(StepLoopConfig{.limits = limits_,
                                                    .slot_capacity = config_.slots(),
                                                    .max_errors_in_a_row = config_.max_errors_in_a_row,
                                                    .max_draft_tokens = config_.max_draft_tokens,
                                                    .guesses = config_.guesses,
                                                    .keep_timelines = config_.keep_timelines,
                                                    .lean = config_.lean,
                                                    .shared_prefixes = config_.shared_prefixes},
                                     std::move(loop));
  return Status();
}

}  // namespace tactus::core
