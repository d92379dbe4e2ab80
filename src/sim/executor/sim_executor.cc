#include "sim/executor/sim_executor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/growing_vector.h"
#include "base/rng.h"
#include "base/step_shape.h"
#include "cost/cost_model.h"

namespace tactus::sim {

namespace {

constexpr int32_t kMostDraftTokens = 64;  // per item

}  // namespace

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
      ring_(std::max(num_stages_, static_cast<size_t>(config.max_in_flight))),
      slots_(RoomFor<std::vector<SlotState>>(static_cast<size_t>(config.max_slots))),
      stage_free_ns_(num_stages_),
      stage_took_ns_(num_stages_),
      loads_(num_stages_) {
  TACTUS_CHECK(num_stages_ >= 1 && config_.clock != nullptr);
  chunks_.reserve(256);
  figures_.stages.resize(num_stages_);
  if (num_stages_ > 1) figures_.request_bubble_ns.emplace();
}

ExecutorTraits SimExecutor::traits() const {
  return {.max_in_flight = static_cast<int32_t>(ring_.size()),
          .can_chain = config_.can_chain,
          .max_draft_tokens = config_.draft_acceptance > 0 ? kMostDraftTokens : 0,
          .has_tokens = false,
          .name = "sim"};
}

void SimExecutor::Expect(RequestHandle handle, const SimRequest& request) {
  // The token after position p - 1 + k is the (k + 1)-th. With ignore_eos only the length ends an answer.
  Known& known = known_[handle];
  known.text = request.index >= 0 ? static_cast<uint64_t>(request.index) : handle;
  if (!request.stop.ignore_eos) known.last_position = request.prompt_tokens + request.output_tokens - 1;
}

void SimExecutor::StartSequences(const StepPlan& plan) {
  for (const SequenceStart& start : plan.starts) {
    MakeUpTo(&slots_, static_cast<size_t>(start.slot));
    SlotState& slot = slots_[static_cast<size_t>(start.slot)];
    const auto known = known_.find(start.request);
    slot.known = known != known_.end() ? known->second : Known{.text = start.request};
    if (num_stages_ > 1 && slot.request != start.request) {
      if (slot.request != 0) figures_.request_bubble_ns->Add(slot.bubble_ns);
      slot.request = start.request;
      slot.bubble_ns = 0;
    }
  }
}

DurationNs SimExecutor::Varied(DurationNs ns) const {
  const double factor = config_.slowness * noise_;
  return factor == 1 ? ns : std::llround(static_cast<double>(ns) * factor);
}

void SimExecutor::Submit(const StepPlan& plan) {
  TACTUS_CHECK(count_ < ring_.size());
  if (!plan.starts.empty()) StartSequences(plan);
  const StepShape& shape = shape_ = ShapeOf(plan, &chunks_);
  InFlight& step = ring_[(head_ + count_) % ring_.size()];
  step.plan = &plan;
  noise_ = config_.noise.FactorOf(plan.step, !shape.chunks.empty());
  if (config_.together) {
    step.end_ns = kNever;
  } else if (num_stages_ == 1) {
    const DurationNs took = Varied(config_.step_time->StepTimeNs(shape));
    step.start_ns = std::max(config_.clock->NowNs(), stage_free_ns_[0]);
    step.end_ns = stage_free_ns_[0] = step.start_ns + took;
    figures_.stages[0].busy_ns += took;
  } else {
    RunStages(plan, shape, &step);
  }
  ++count_;
  ++submitted_;
  Measure(shape, plan);
  if (!config_.together) Began(step);
}

void SimExecutor::Began(const InFlight& step) {
  figures_.step_ns += step.end_ns - step.start_ns;
  if (config_.observer) config_.observer(*step.plan, step.start_ns, step.end_ns);
}

void SimExecutor::Begin(TimeNs start_ns, DurationNs took_ns) {
  TACTUS_CHECK(waits());
  InFlight& step = ring_[head_];
  step.start_ns = start_ns;
  step.end_ns = start_ns + took_ns;
  figures_.stages[0].busy_ns += took_ns;
  Began(step);
}

// Stage k starts the step when the stage is free and the step has left stage k - 1 and been sent. The idle time before
// that is a bubble, caused by the awaited step. A step that is late at one stage is late at the next for the same
// causes; only additional idle time gets a new cause. Step noise multiplies all stages and sends of a step by one
// factor.
void SimExecutor::RunStages(const StepPlan& plan, const StepShape& shape, InFlight* step) {
  const auto index = static_cast<size_t>(submitted_);
  const Load load{plan.num_tokens - shape.decodes, shape.decodes};
  const bool first = submitted_ == 0;
  const DurationNs send_ns = Varied(config_.step_time->SendTimeNs(shape));
  step_bubble_ns_ = {};

  TimeNs start = step->start_ns = std::max(config_.clock->NowNs(), stage_free_ns_[0]);
  IdleByCause late{};
  if (!first) {
    late = FirstIdle(start - stage_free_ns_[0], send_ns * static_cast<DurationNs>(num_stages_ - 1),
                     loads_[index % num_stages_]);
    AddBubbles(0, late);
  }
  for (size_t k = 0;; ++k) {
    const DurationNs took = Varied(config_.step_time->StageTimeNs(shape, static_cast<int32_t>(k)));
    const TimeNs end = stage_free_ns_[k] = start + took;
    stage_took_ns_[k] = took;
    figures_.stages[k].busy_ns += took;
    if (k + 1 == num_stages_) {
      step->end_ns = end;
      break;
    }
    start = std::max(end + send_ns, stage_free_ns_[k + 1]);
    if (first) continue;
    late = NextIdle(late, start - stage_free_ns_[k + 1], took - stage_took_ns_[k + 1], send_ns, load);
    AddBubbles(k + 1, late);
  }
  loads_[index % num_stages_] = before_ = load;
  step_bubble_ns_[static_cast<size_t>(BubbleCause::kStarved)] = 0;  // lack of work is no bubble of a request
  DurationNs bubble_ns = 0;
  for (size_t c = 0; c < kNumBubbleCauses; ++c) {
    bubble_ns += step_bubble_ns_[c];
    figures_.request_bubble_sum_ns[c] += step_bubble_ns_[c] * static_cast<DurationNs>(plan.items.size());
  }
  if (bubble_ns == 0) return;
  for (const StepItem& item : plan.items) slots_[static_cast<size_t>(item.slot)].bubble_ns += bubble_ns;
}

// Idle time of stage 0. A full pipeline waits for the step that has just left the last stage (the new step gets its
// slot in the ring of loads); a pipeline that is not full waits for work.
IdleByCause SimExecutor::FirstIdle(DurationNs idle_ns, DurationNs sending_ns, const Load& awaited) const {
  IdleByCause idle{};
  if (count_ + 1 < num_stages_) {
    idle[static_cast<size_t>(BubbleCause::kStarved)] = idle_ns;
    return idle;
  }
  const DurationNs sent = std::min(idle_ns, sending_ns);
  idle[static_cast<size_t>(BubbleCause::kCommunication)] = sent;
  idle[static_cast<size_t>(CauseOf(before_, awaited))] += idle_ns - sent;
  return idle;
}

// Idle time of a later stage. The step was `late` at the stage before, where it took `longer_ns` more than the previous
// step took at this stage. With equal steps the stage idles as long as the one before it, or less if the previous step
// had to wait here too.
IdleByCause SimExecutor::NextIdle(const IdleByCause& late, DurationNs idle_ns, DurationNs longer_ns,
                                  DurationNs sending_ns, const Load& load) const {
  IdleByCause idle{};
  if (idle_ns <= 0) return idle;
  if (count_ == 0) {  // nothing was in flight: the stage was starved, whatever this step contains
    idle[static_cast<size_t>(BubbleCause::kStarved)] = idle_ns;
    return idle;
  }
  const DurationNs late_ns = std::accumulate(late.begin(), late.end(), DurationNs{0});
  const DurationNs handed_on = std::min(late_ns, idle_ns - std::clamp<DurationNs>(longer_ns, 0, idle_ns));
  DurationNs left = handed_on;
  for (size_t c = kNumBubbleCauses; handed_on > 0 && c-- > 0;) {
    const double share = static_cast<double>(late[c]) / static_cast<double>(late_ns);
    idle[c] = std::min(left, static_cast<DurationNs>(std::llround(share * static_cast<double>(handed_on))));
    left -= idle[c];
  }
  const DurationNs own = idle_ns - handed_on + left, sent = std::min(own, sending_ns);
  idle[static_cast<size_t>(BubbleCause::kCommunication)] += sent;
  idle[static_cast<size_t>(CauseOf(before_, load))] += own - sent;
  return idle;
}

void SimExecutor::AddBubbles(size_t stage, const IdleByCause& idle) {
  for (size_t c = 0; c < kNumBubbleCauses; ++c) {
    figures_.stages[stage].bubble_ns[c] += idle[c];
    step_bubble_ns_[c] += idle[c];
  }
}

BubbleCause SimExecutor::CauseOf(const Load& a, const Load& b) {
  if (a.prefill_tokens > 0 && b.prefill_tokens > 0) return BubbleCause::kPrefills;
  return a.prefill_tokens > 0 || b.prefill_tokens > 0 ? BubbleCause::kPrefillDecode : BubbleCause::kContexts;
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

// No draft token beyond the end of the answer is accepted.
int32_t SimExecutor::AcceptedDrafts(const StepItem& item) const {
  const SlotState& slot = slots_[static_cast<size_t>(item.slot)];
  const int32_t sure_end = item.first_position + item.count - item.draft_tokens;
  const int32_t most = std::clamp(slot.known.last_position - sure_end, 0, item.draft_tokens);
  int32_t accepted = 0;
  while (accepted < most && UniformAt(config_.seed, slot.known.text, static_cast<uint64_t>(sure_end + accepted)) <
                                config_.draft_acceptance) {
    ++accepted;
  }
  return accepted;
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
  result->accepted_drafts.clear();
  const std::vector<StepItem>& items = step.plan->items;
  for (size_t i = 0; i < items.size(); ++i) {
    const StepItem& item = items[i];
    int32_t end = item.first_position + item.count;
    if (item.draft_tokens > 0) {
      const int32_t accepted = AcceptedDrafts(item);
      result->accepted_drafts.push_back(accepted);
      end += accepted - item.draft_tokens;
    }
    if (end >= slots_[static_cast<size_t>(item.slot)].known.last_position && item.sample) {
      result->stops.push_back(static_cast<int32_t>(i));
    }
  }
  head_ = head_ + 1 == ring_.size() ? 0 : head_ + 1;
  --count_;
  return true;
}

void SimExecutor::Close() {
  for (SlotState& slot : slots_) {
    if (slot.request != 0) figures_.request_bubble_ns->Add(slot.bubble_ns);
    slot.request = 0;
  }
}

}  // namespace tactus::sim
