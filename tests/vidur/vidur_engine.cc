#include "vidur/vidur_engine.h"

#include <fmt/format.h>

#include <cmath>

#include "base/sim_request.h"
#include "core/sched/choices.h"
#include "core/sched/context.h"
#include "sim/simulator/simulator.h"
#include "vidur/vidur_policies.h"

namespace tactus::vidur {
namespace {

TimeNs ToNs(double seconds) {
  return std::llround(seconds * 1e9);
}
double ToSeconds(TimeNs ns) {
  return static_cast<double>(ns) * 1e-9;
}

class ListedRequests final : public sim::WorkloadStream {
 public:
  explicit ListedRequests(const std::vector<TraceRequest>& requests) : requests_(requests) {}
  int64_t count() const override { return static_cast<int64_t>(requests_.size()); }
  bool has_arrivals() const override { return true; }
  bool shares_text() const override { return false; }
  bool NextTurn(const sim::WorkloadRequest&, sim::WorkloadRequest*) override { return false; }
  bool Next(sim::WorkloadRequest* out) override {
    if (next_ == requests_.size()) return false;
    const TraceRequest& r = requests_[next_];
    *out = sim::WorkloadRequest();
    out->arrival_ns = ToNs(r.arrival_s);
    out->prompt_tokens = r.prompt_tokens;
    out->output_tokens = r.output_tokens;
    out->index = static_cast<int64_t>(next_++);
    return true;
  }

 private:
  const std::vector<TraceRequest>& requests_;
  size_t next_ = 0;
};

// Data for the rows that only the scheduler has: used blocks and the queue after a plan.
struct AfterPlan {
  int64_t blocks_used = 0, waiting = 0;
};

class Watched final : public core::Composition {
 public:
  Watched(std::unique_ptr<core::Composition> inner, int64_t blocks_total, AfterPlan* after)
      : inner_(std::move(inner)), blocks_total_(blocks_total), after_(*after) {}
  void Describe(core::ChoiceTraits* traits) const override { inner_->Describe(traits); }
  void Compose(core::StepContext& step) override {
    const auto waited = static_cast<int64_t>(step.view.waiting.size());
    const auto ran = static_cast<int64_t>(step.view.running.size());
    const int32_t starts_left = step.plan.starts_left();
    inner_->Compose(step);
    const int64_t runs = ran + starts_left - step.plan.starts_left();  // starts less preemptions
    after_.waiting = waited + ran - runs;
    after_.blocks_used = blocks_total_ - step.plan.blocks_available();
  }

 private:
  const std::unique_ptr<core::Composition> inner_;
  const int64_t blocks_total_;
  AfterPlan& after_;
};

// Writes step rows from plans and request rows from ends.
class Recorder final : public core::EventSink {
 public:
  Recorder(size_t requests, const AfterPlan* after) : after_(*after) { log.requests.resize(requests); }

  void Step(const StepPlan& plan, TimeNs start_ns, TimeNs end_ns) {
    StepRow row;
    row.start_s = ToSeconds(start_ns);
    row.end_s = ToSeconds(end_ns);
    row.sequences = static_cast<int32_t>(plan.items.size());
    row.blocks_used = after_.blocks_used;
    row.waiting = after_.waiting;
    for (const SlotId s : plan.preempts) row.restarted.push_back({At(s).id, At(s).processed, At(s).decodes});
    // No request is refused, so handles are the workload's indices plus 1.
    for (const SequenceStart& start : plan.starts) At(start.slot).id = static_cast<int32_t>(start.request) - 1;
    size_t next_prompt = 0;
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const StepItem& item = plan.items[i];
      Slot& slot = At(item.slot);
      if (next_prompt < plan.prompt_items.size() && plan.prompt_items[next_prompt] == static_cast<int32_t>(i)) {
        ++next_prompt;
        row.prefills.push_back({slot.id, item.first_position, item.count});
        row.prefill_tokens += item.count;
      } else {
        ++row.decode_tokens;
        row.decode_context_sum += item.first_position + 1;
        row.decode_id_sum += slot.id;
      }
      slot.processed = item.first_position + item.count + (item.sample ? 1 : 0);
      slot.decodes = item.sample;
    }
    log.steps.push_back(std::move(row));
  }

  bool wants_tokens() const override { return false; }
  void OnStep(const core::StepEvents& events) override {
    for (const core::RequestDoneEvent& e : events.done) {
      RequestRow& row = log.requests[static_cast<size_t>(static_cast<const SimRequest&>(*e.request).index)];
      row.scheduled_s = ToSeconds(e.scheduled_ns);
      row.first_token_s = ToSeconds(e.first_token_ns);
      row.completed_s = ToSeconds(e.done_ns);
      row.restarts = e.preemptions;
      row.tokens_emitted = e.completion_tokens;
    }
  }

  Log log;

 private:
  struct Slot {
    int32_t id = -1, processed = 0;
    bool decodes = false;
  };
  Slot& At(SlotId s) {
    if (slots_.size() <= static_cast<size_t>(s)) slots_.resize(static_cast<size_t>(s) + 1);
    return slots_[static_cast<size_t>(s)];
  }
  const AfterPlan& after_;
  std::vector<Slot> slots_;
};

core::SchedulerConfig ConfigOf(const Rules& rules, Choices choices) {
  core::SchedulerConfig c;
  c.limits.unlimited_steps = true;
  c.limits.max_num_seqs = rules.max_running();
  c.limits.max_model_len = rules.max_request_tokens;
  c.limits.blocks_total = rules.blocks;
  c.limits.block_size = rules.block_size;
  // Our admission rounds the watermark's blocks up, Vidur's rounds them down.
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
      break;
  }
  if (choices == Choices::kVidur && rules.policy != Policy::kOrca) c.budget = "none";  // the composition has the budget
  return c;
}

std::unique_ptr<core::Composition> StockComposition(const Rules& rules, const core::SchedulerLimits& limits) {
  switch (rules.policy) {
    case Policy::kSarathi:
      return core::MakeStallFree(limits);
    case Policy::kVllm:
      return core::MakePrefillFirst(limits);
    case Policy::kOrca:
      return core::MakeWholePromptHybrid(limits);
  }
  return nullptr;
}

}  // namespace

Result<EngineRun> RunEngine(const Rules& rules, Choices choices, const std::vector<TraceRequest>& requests,
                            const Tables& tables) {
  const TableStepTime model(&tables);
  AfterPlan after;
  Recorder recorder(requests.size(), &after);
  sim::SimulationConfig config;
  config.scheduler = ConfigOf(rules, choices);
  config.injected = [&] {
    core::InjectedChoices injected;
    auto composition = choices == Choices::kVidur ? MakeComposition(rules) : nullptr;
    if (composition == nullptr) composition = StockComposition(rules, config.scheduler.limits);
    injected.composition = std::make_unique<Watched>(std::move(composition), rules.blocks, &after);
    return injected;
  };
  config.step_time = &model;
  config.prefix_caching = false;
  config.on_step = [&recorder](int32_t, const StepPlan& plan, TimeNs start, TimeNs end) {
    recorder.Step(plan, start, end);
  };
  config.observer = &recorder;
  ListedRequests workload(requests);
  TACTUS_ASSIGN_OR_RETURN(const auto simulation, sim::Simulation::Create(config, &workload));
  TACTUS_RETURN_IF_ERROR(simulation->Run());
  if (!simulation->finished()) return Internal("the simulation stalled with work left");
  return EngineRun{std::move(recorder.log), simulation->Describe(), simulation->plan_hashes().front()};
}

}  // namespace tactus::vidur
