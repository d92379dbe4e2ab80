#include "sim/sim_executor.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "cost/cost_model.h"

namespace tactus {

const char* BubbleCauseName(BubbleCause cause) {
  static constexpr const char* kNames[kNumBubbleCauses] = {"unequal_prefills", "prefill_beside_decode",
                                                           "unequal_contexts", "communication", "starved"};
  return kNames[static_cast<size_t>(cause)];
}

DurationNs StageFigures::bubbles() const {
  DurationNs sum = 0;
  for (const DurationNs ns : bubble_ns) sum += ns;
  return sum;
}

SimExecutor::SimExecutor(const SimExecutorConfig& config)
    : config_(config),
      num_stages_(static_cast<size_t>(config.step_time->stages())),
      ring_(num_stages_),
      slots_(static_cast<size_t>(config.max_slots)),
      stage_free_ns_(num_stages_),
      loads_(num_stages_) {
  TACTUS_CHECK(num_stages_ >= 1 && config_.clock != nullptr);
  chunks_.reserve(256);
  figures_.stages.resize(num_stages_);
}

ExecutorTraits SimExecutor::traits() const {
  return {.max_in_flight = static_cast<int32_t>(num_stages_), .can_chain = false, .has_tokens = false, .name = "sim"};
}

StepShape ShapeOf(const StepPlan& plan, std::vector<ChunkShape>* chunks) {
  chunks->clear();
  for (const int32_t i : plan.prompt_items) {
    const StepItem& item = plan.items[static_cast<size_t>(i)];
    chunks->push_back({item.first_position, item.count});
  }
  StepShape shape;
  shape.chunks = *chunks;
  shape.decodes = static_cast<int64_t>(plan.items.size() - plan.prompt_items.size());
  shape.decode_context_tokens = plan.decode_context_tokens;
  shape.logit_rows = plan.logit_rows;
  shape.padded_tokens = plan.padded_tokens;
  shape.swap_blocks = static_cast<int64_t>(plan.swap_outs.size() + plan.swap_ins.size());
  return shape;
}

void SimExecutor::StartSequences(const StepPlan& plan) {
  for (const SequenceStart& start : plan.starts) {
    SlotState& slot = slots_[static_cast<size_t>(start.slot)];
    // With ignore_eos nothing but the length ends an answer, and the request may be of any kind.
    slot.last_position = std::numeric_limits<int32_t>::max();
    if (!start.request->stop.ignore_eos) {
      const auto& request = static_cast<const SimRequest&>(*start.request);
      // The token after position p - 1 + k is the (k + 1)-th.
      slot.last_position = request.prompt_tokens + request.output_tokens - 1;
    }
    if (num_stages_ > 1 && slot.request != start.request) {
      if (slot.request != nullptr) figures_.request_bubble_ns.Add(slot.bubble_ns);
      slot.request = start.request;
      slot.bubble_ns = 0;
    }
  }
}

void SimExecutor::Submit(const StepPlan& plan) {
  TACTUS_CHECK(count_ < ring_.size());
  if (!plan.starts.empty()) StartSequences(plan);
  const StepShape shape = ShapeOf(plan, &chunks_);
  InFlight& step = ring_[(head_ + count_) % ring_.size()];
  step.plan = &plan;
  if (num_stages_ == 1) {
    const DurationNs took = config_.step_time->StepTimeNs(shape);
    step.start_ns = std::max(config_.clock->NowNs(), stage_free_ns_[0]);
    step.end_ns = stage_free_ns_[0] = step.start_ns + took;
    figures_.stages[0].busy_ns += took;
  } else {
    RunStages(plan, shape, &step);
  }
  ++count_;
  ++submitted_;
  Measure(shape, plan);
  figures_.step_ns += step.end_ns - step.start_ns;
  if (config_.observer) config_.observer(plan, step.start_ns, step.end_ns);
}

// Stage k takes the step when it is free and the step has left stage k - 1 and arrived. The idle time before that is a
// bubble: of the step that is waited for, against the one that this stage has just done.
void SimExecutor::RunStages(const StepPlan& plan, const StepShape& shape, InFlight* step) {
  const TimeNs now = config_.clock->NowNs();
  const auto index = static_cast<size_t>(submitted_);
  const Load load{plan.num_tokens - shape.decodes, shape.decodes};
  const bool first = submitted_ == 0;
  const Load& before = loads_[(index + num_stages_ - 1) % num_stages_];
  const DurationNs send_ns = config_.step_time->SendTimeNs(shape);
  step_bubble_ns_ = {};

  // At stage 0 a full pipeline waits for the step that has just left the last stage (its slot in the ring of loads is
  // ours now); one that is not full waits for work.
  const bool was_full = count_ + 1 == num_stages_;
  const Load& awaited = loads_[index % num_stages_];
  TimeNs start = std::max(now, stage_free_ns_[0]);
  step->start_ns = start;
  if (!first) {
    const DurationNs idle = start - stage_free_ns_[0];
    AddBubble(0, idle, send_ns * static_cast<DurationNs>(num_stages_ - 1), !was_full, before, awaited);
  }
  for (size_t k = 0;; ++k) {
    const DurationNs took = config_.step_time->StageTimeNs(shape, static_cast<int32_t>(k));
    const TimeNs end = stage_free_ns_[k] = start + took;
    figures_.stages[k].busy_ns += took;
    if (k + 1 == num_stages_) {
      step->end_ns = end;
      break;
    }
    start = std::max(end + send_ns, stage_free_ns_[k + 1]);
    if (first) continue;
    // A stage that had nothing in flight behind it was starved, whatever this step looks like.
    const DurationNs idle = start - stage_free_ns_[k + 1];
    const bool starved = count_ == 0;
    AddBubble(k + 1, idle, send_ns, starved, before, load);
  }
  loads_[index % num_stages_] = load;
  step_bubble_ns_[static_cast<size_t>(BubbleCause::kStarved)] = 0;  // want of work is nobody's
  DurationNs bubble_ns = 0;
  for (size_t c = 0; c < kNumBubbleCauses; ++c) {
    bubble_ns += step_bubble_ns_[c];
    figures_.request_bubble_sum_ns[c] += step_bubble_ns_[c] * static_cast<DurationNs>(plan.items.size());
  }
  if (bubble_ns == 0) return;
  for (const StepItem& item : plan.items) slots_[static_cast<size_t>(item.slot)].bubble_ns += bubble_ns;
}

void SimExecutor::AddBubble(size_t stage, DurationNs idle_ns, DurationNs sending_ns, bool starved, const Load& a,
                            const Load& b) {
  if (idle_ns <= 0) return;
  const auto add = [&](BubbleCause cause, DurationNs ns) {
    figures_.stages[stage].bubble_ns[static_cast<size_t>(cause)] += ns;
    step_bubble_ns_[static_cast<size_t>(cause)] += ns;
  };
  if (starved) return add(BubbleCause::kStarved, idle_ns);
  const DurationNs sent = std::min(idle_ns, sending_ns);
  add(BubbleCause::kCommunication, sent);
  const BubbleCause cause = a.prefill_tokens > 0 && b.prefill_tokens > 0   ? BubbleCause::kPrefills
                            : a.prefill_tokens > 0 || b.prefill_tokens > 0 ? BubbleCause::kPrefillDecode
                                                                           : BubbleCause::kContexts;
  add(cause, idle_ns - sent);
}

void SimExecutor::Measure(const StepShape& shape, const StepPlan& plan) {
  SimExecutorFigures& f = figures_;
  ++f.steps;
  f.items += static_cast<int64_t>(plan.items.size());
  f.most_tokens = std::max(f.most_tokens, plan.num_tokens);
  f.most_decodes = std::max(f.most_decodes, shape.decodes);
  f.most_decode_context_tokens = std::max(f.most_decode_context_tokens, shape.decode_context_tokens);
  f.most_logit_rows = std::max(f.most_logit_rows, shape.logit_rows);
  for (const ChunkShape& c : chunks_) {
    f.most_chunk.tokens = std::max(f.most_chunk.tokens, c.tokens);
    f.most_chunk.context_tokens = std::max(f.most_chunk.context_tokens, c.context_tokens);
  }
  if (config_.meter != nullptr) {
    f.flops += config_.meter->StepFlops(shape);
    f.bytes += config_.meter->StepBytes(shape);
  }
}

bool SimExecutor::Poll(StepResult* result) {
  if (count_ == 0) return false;
  const InFlight& step = ring_[head_];
  if (config_.clock->NowNs() < step.end_ns) return false;
  result->step = step.plan->step;
  if (!result->status.ok()) result->status = Status();
  result->as_planned = true;
  result->start_ns = step.start_ns;
  result->end_ns = step.end_ns;
  result->stops.clear();
  const std::vector<StepItem>& items = step.plan->items;
  for (size_t i = 0; i < items.size(); ++i) {
    const StepItem& item = items[i];
    if (item.first_position + item.count >= slots_[static_cast<size_t>(item.slot)].last_position && item.sample) {
      result->stops.push_back(static_cast<int32_t>(i));
    }
  }
  head_ = head_ + 1 == ring_.size() ? 0 : head_ + 1;
  --count_;
  return true;
}

void SimExecutor::Close() {
  for (SlotState& slot : slots_) {
    if (slot.request != nullptr) figures_.request_bubble_ns.Add(slot.bubble_ns);
    slot.request.reset();
  }
}

}  // namespace tactus
