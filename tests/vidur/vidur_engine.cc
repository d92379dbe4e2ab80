#include "vidur/vidur_engine.h"

#include <fmt/format.h>

#include <cmath>

#include "engine/step_loop.h"
#include "vidur/vidur_policies.h"

namespace tactus::vidur {
namespace {

struct NumberedRequest : Request {
  int32_t number = 0;
};

TimeNs ToNs(double seconds) {
  return std::llround(seconds * 1e9);
}
double ToSeconds(TimeNs ns) {
  return static_cast<double>(ns) * 1e-9;
}

// One step at a time, as long as the model says, and writes the step's row.
class RecordingExecutor final : public Executor {
 public:
  RecordingExecutor(const StepTimeModel* model, ManualClock* clock, const KvCache* kv, int32_t slots)
      : model_(*model),
        clock_(*clock),
        kv_(*kv),
        ids_(static_cast<size_t>(slots), -1),
        processed_(ids_.size(), 0),
        decodes_(ids_.size(), false) {}
  ExecutorTraits traits() const override {
    return {.max_in_flight = 1, .can_chain = false, .has_tokens = false, .name = "tables"};
  }
  void SetWakeup(std::function<void()>) override {}
  TimeNs NextReadyNs() const override { return plan_ == nullptr ? kNever : end_ns_; }

  void Submit(const StepPlan& plan) override {
    plan_ = &plan;
    StepRow row;
    for (const SlotId s : plan.preempts) {
      const auto at = static_cast<size_t>(s);
      row.restarted.push_back({ids_[at], processed_[at], decodes_[at]});
    }
    for (const SequenceStart& start : plan.starts) {
      const auto at = static_cast<size_t>(start.slot);
      ids_[at] = static_cast<const NumberedRequest&>(*start.request).number;
      processed_[at] = 0;
    }
    chunks_.clear();
    size_t next_prompt = 0;
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const StepItem& item = plan.items[i];
      const auto at = static_cast<size_t>(item.slot);
      if (next_prompt < plan.prompt_items.size() && plan.prompt_items[next_prompt] == static_cast<int32_t>(i)) {
        ++next_prompt;
        row.prefills.push_back({ids_[at], item.first_position, item.count});
        row.prefill_tokens += item.count;
        chunks_.push_back({item.first_position, item.count});
      } else {
        ++row.decode_tokens;
        row.decode_context_sum += item.first_position + 1;
        row.decode_id_sum += ids_[at];
      }
      processed_[at] = item.first_position + item.count + (item.sample ? 1 : 0);
      decodes_[at] = item.sample;
    }
    row.sequences = static_cast<int32_t>(plan.items.size());
    row.blocks_used = kv_.blocks_total() - kv_.blocks_available();
    running_ += static_cast<int64_t>(plan.starts.size()) - static_cast<int64_t>(plan.preempts.size());
    row.waiting = submitted - done - running_;

    StepShape shape;
    shape.chunks = chunks_;
    shape.decodes = plan.num_decodes;
    shape.decode_context_tokens = plan.decode_context_tokens;
    shape.logit_rows = plan.logit_rows;
    start_ns_ = clock_.NowNs();
    end_ns_ = start_ns_ + model_.StepTimeNs(shape);
    row.start_s = ToSeconds(start_ns_);
    row.end_s = ToSeconds(end_ns_);
    rows.push_back(std::move(row));
  }

  bool Poll(StepResult* result) override {
    if (plan_ == nullptr || end_ns_ > clock_.NowNs()) return false;
    result->Clear();
    result->step = plan_->step;
    result->as_planned = true;
    result->start_ns = start_ns_;
    result->end_ns = end_ns_;
    plan_ = nullptr;
    return true;
  }

  void Done() {
    ++done;
    --running_;
  }

  std::vector<StepRow> rows;
  int64_t submitted = 0, done = 0;

 private:
  const StepTimeModel& model_;
  ManualClock& clock_;
  const KvCache& kv_;
  std::vector<int32_t> ids_, processed_;  // by slot
  std::vector<bool> decodes_;
  std::vector<ChunkShape> chunks_;
  const StepPlan* plan_ = nullptr;
  TimeNs start_ns_ = 0, end_ns_ = 0;
  int64_t running_ = 0;
};

class RequestLog final : public EventSink {
 public:
  RequestLog(std::vector<RequestRow>* rows, RecordingExecutor* executor) : rows_(*rows), executor_(*executor) {}
  bool wants_tokens() const override { return false; }
  void OnStep(const StepEvents& events) override {
    for (const RequestDoneEvent& e : events.done) {
      RequestRow& row = rows_[static_cast<size_t>(static_cast<const NumberedRequest&>(*e.request).number)];
      row.scheduled_s = ToSeconds(e.scheduled_ns);
      row.first_token_s = ToSeconds(e.first_token_ns);
      row.completed_s = ToSeconds(e.done_ns);
      row.restarts = e.preemptions;
      row.tokens_emitted = e.completion_tokens;
    }
  }

 private:
  std::vector<RequestRow>& rows_;
  RecordingExecutor& executor_;
};

sched::SchedulerConfig ConfigOf(const Rules& rules, Choices choices, int32_t slots) {
  sched::SchedulerConfig c;
  c.limits.max_num_seqs = rules.max_running();
  c.limits.max_model_len = rules.max_request_tokens;
  c.limits.slot_capacity = slots;
  c.limits.blocks_total = rules.blocks;
  c.limits.block_size = rules.block_size;
  // Admission keeps the share's blocks free, rounded up; theirs is rounded down.
  const auto keep = static_cast<double>(rules.watermark_blocks());
  c.limits.watermark = keep > 0 ? (keep - 0.5) / static_cast<double>(rules.blocks) : 0;
  switch (rules.policy) {
    case Policy::kSarathi:
      c.preset = "sarathi-serve";
      c.limits.token_budget = rules.chunk;
      break;
    case Policy::kVllm:
      c.preset = "vllm-v0";
      break;
    case Policy::kOrca:
      c.preset = "orca";
      c.limits.reserve_full = true;
      c.limits.unlimited_steps = true;
      break;
  }
  if (choices == Choices::kVidur && rules.policy != Policy::kOrca) {
    c.budget = "none";  // the composition has its own
    c.limits.unlimited_steps = true;
  }
  return c;
}

}  // namespace

Result<EngineRun> RunEngine(const Rules& rules, Choices choices, const std::vector<TraceRequest>& requests,
                            const Tables& tables) {
  const auto slots = static_cast<int32_t>(requests.size());
  sched::InjectedChoices injected;
  if (choices == Choices::kVidur) injected.composition = MakeComposition(rules);
  TACTUS_ASSIGN_OR_RETURN(const auto scheduler,
                          sched::Scheduler::Create(ConfigOf(rules, choices, slots), std::move(injected)));

  KvCache kv({.num_blocks = rules.blocks,
              .block_size = rules.block_size,
              .max_slots = slots,
              .max_blocks_per_slot = rules.blocks_for(rules.max_request_tokens),
              .prefix_caching = false});
  const TableStepTime model(&tables);
  ManualClock clock;
  RecordingExecutor executor(&model, &clock, &kv, slots);
  EngineRun out;
  out.run.requests.resize(requests.size());
  RequestLog log(&out.run.requests, &executor);

  StepLoopConfig config;
  config.limits.max_model_len = rules.max_request_tokens;
  config.limits.max_num_seqs = rules.max_running();
  config.limits.max_queue = slots;
  config.limits.block_size = rules.block_size;
  config.limits.blocks_total = rules.blocks;
  config.limits.prefix_caching = false;
  config.slot_capacity = slots;
  StepLoopParts parts;
  parts.scheduler = scheduler.get();
  parts.executor = &executor;
  parts.kv = &kv;
  parts.clock = &clock;
  parts.sink = &log;
  StepLoop loop(config, std::move(parts));

  size_t next = 0;
  for (;;) {
    for (; next < requests.size() && ToNs(requests[next].arrival_s) <= clock.NowNs(); ++next) {
      auto request = std::make_shared<NumberedRequest>();
      request->number = static_cast<int32_t>(next);
      request->stop.max_tokens = requests[next].output_tokens;
      TACTUS_ASSIGN_OR_RETURN(PreparedRequest prepared,
                              PrepareWithoutTokens(request, requests[next].prompt_tokens, {}, config.limits));
      prepared.arrival_ns = ToNs(requests[next].arrival_s);
      TACTUS_RETURN_IF_ERROR(loop.Submit(std::move(prepared)).status());
      ++executor.submitted;
    }
    while (loop.RunOnce()) {
    }
    const TimeNs arrival = next < requests.size() ? ToNs(requests[next].arrival_s) : kNever;
    const TimeNs event = std::min(arrival, executor.NextReadyNs());
    if (event == kNever) break;
    clock.AdvanceTo(event);
  }
  if (!loop.idle()) return Internal("the engine came to a stop with work left");
  out.run.steps = std::move(executor.rows);
  out.scheduler = scheduler->Describe();
  out.plan_hash = loop.plan_hash();
  return out;
}

}  // namespace tactus::vidur
