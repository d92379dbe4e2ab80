// A backend with the step times of a simulation, from the simulation's own executor. For the engine it is a device with
// tokens, which returns a result for each item and the tokens of its script.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/backend.h"
#include "base/check.h"
#include "gated_clock.h"
#include "sim/executor/sim_executor.h"

namespace tactus {

// A line with all of a step's plan except token ids.
inline std::string PlanText(const StepPlan& plan) {
  std::string text = fmt::format("step {}:", plan.step);
  for (const SlotId s : plan.preempts) text += fmt::format(" preempt {}", s);
  for (const SwapCopy& c : plan.swap_outs) text += fmt::format(" out {}->{} {}", c.block, c.host_block, c.tokens);
  for (const SwapCopy& c : plan.swap_ins) text += fmt::format(" in {}->{} {}", c.host_block, c.block, c.tokens);
  for (const SequenceStart& s : plan.starts) text += fmt::format(" start {}", s.slot);
  for (const StepItem& i : plan.items) {
    text += fmt::format(" {}@{}+{}{}", i.slot, i.first_position, i.count, i.sample ? "!" : "");
  }
  for (const TableUpdate& u : plan.table_updates) text += fmt::format(" table {}[{}]", u.slot, u.first_index);
  for (const BlockId b : plan.table_blocks) text += fmt::format(" {}", b);
  for (const BlockCopy& c : plan.copies) text += fmt::format(" copy {}->{} {}", c.from, c.to, c.tokens);
  return text;
}

// The tokens that the executor of a run shall return, and a record of its steps for the driver. Any thread.
class Script {
 public:
  // Sets a request's text, from its first prompt token to its last output token. Call before the loop takes the
  // request.
  void Tell(RequestHandle request, std::vector<TokenId> text) {
    std::lock_guard lock(mutex_);
    texts_[request] = std::move(text);
  }
  // The request's token at `position`; with the last token the request has ended.
  TokenId Say(RequestHandle request, int32_t position) {
    std::lock_guard lock(mutex_);
    const auto found = texts_.find(request);
    TACTUS_CHECK_MSG(found != texts_.end(), fmt::format("request {} has no text in the script", request));
    const std::vector<TokenId>& text = found->second;
    if (static_cast<size_t>(position) + 1 == text.size()) ended_.push_back(request);
    return text.at(static_cast<size_t>(position));
  }

  void Planned(const StepPlan& plan) {
    std::lock_guard lock(mutex_);
    plans_.push_back(PlanText(plan));
  }
  std::vector<std::string> plans() const {
    std::lock_guard lock(mutex_);
    return plans_;
  }
  // When the step in flight is ready; kNever: none.
  void SetReady(TimeNs ready_ns) {
    std::lock_guard lock(mutex_);
    ready_ns_ = ready_ns;
  }
  TimeNs ready_ns() const {
    std::lock_guard lock(mutex_);
    return ready_ns_;
  }
  // Requests whose last token was returned since the last call, in order.
  std::vector<RequestHandle> TakeEnded() {
    std::lock_guard lock(mutex_);
    return std::exchange(ended_, {});
  }

 private:
  mutable std::mutex mutex_;
  std::map<RequestHandle, std::vector<TokenId>> texts_;
  std::vector<std::string> plans_;
  std::vector<RequestHandle> ended_;
  TimeNs ready_ns_ = kNever;
};

class ScriptedExecutor final : public Executor {
 public:
  ScriptedExecutor(const StepTimeModel& step_time, int32_t max_slots, GatedClock* time, Script* script)
      : time_(*time), script_(*script), inner_({.step_time = &step_time, .clock = &clock_, .max_slots = max_slots}) {}

  ExecutorTraits traits() const override {
    ExecutorTraits traits = inner_.traits();
    traits.has_tokens = true;
    traits.name = "scripted";
    return traits;
  }
  void Submit(const StepPlan& plan) override {
    clock_.AdvanceTo(time_.Peek());
    plans_.push_back(&plan);
    for (const SequenceStart& start : plan.starts) requests_[start.slot] = start.request;
    inner_.Submit(plan);
    script_.Planned(plan);
    script_.SetReady(inner_.NextReadyNs());
  }
  bool Poll(StepResult* result) override {
    clock_.AdvanceTo(time_.Peek());
    if (!inner_.Poll(&short_form_)) return false;
    const StepPlan& plan = *plans_.front();
    plans_.erase(plans_.begin());
    result->Clear();
    result->step = short_form_.step;
    result->start_ns = short_form_.start_ns;
    result->end_ns = short_form_.end_ns;
    for (const StepItem& item : plan.items) {
      const auto offset = static_cast<int32_t>(result->tokens.size());
      result->items.push_back({ItemStatus::kOk, item.count, offset, item.sample ? 1 : 0});
      if (!item.sample) continue;
      result->tokens.push_back(script_.Say(requests_.at(item.slot), item.first_position + item.count));
    }
    script_.SetReady(inner_.NextReadyNs());
    return true;
  }
  void SetWakeup(std::function<void()>) override {}  // the gate wakes the loop
  TimeNs NextReadyNs() const override { return inner_.NextReadyNs(); }

 private:
  GatedClock& time_;
  Script& script_;
  ManualClock clock_;  // a copy of the gated clock's time, for calls on the engine's thread
  sim::SimExecutor inner_;
  std::vector<const StepPlan*> plans_;
  std::map<SlotId, RequestHandle> requests_;
  StepResult short_form_;
};

class ScriptedBackend final : public Backend {
 public:
  // `blocks` and `swap_blocks`: the available memory. Referenced objects outlive the backend.
  ScriptedBackend(const StepTimeModel& step_time, int64_t blocks, int64_t swap_blocks, GatedClock* time, Script* script)
      : step_time_(step_time), blocks_(blocks), swap_blocks_(swap_blocks), time_(*time), script_(*script) {}

  BackendInfo Info() const override {
    BackendInfo info;
    info.devices = {{"a script", -1}};
    info.kernels = info.arithmetic = info.summary = "scripted";
    info.profile.name = "1t";  // of the stored step times
    return info;
  }
  Result<MemoryGrant> PlanMemory(const MemoryDemand& demand) const override {
    return MemoryGrant{.max_model_len = std::min(demand.max_model_len, blocks_ * demand.block_size),
                       .num_blocks = blocks_,
                       .swap_blocks = demand.swap_bytes > 0 ? swap_blocks_ : 0,
                       .front_end_bytes = demand.front_end_bytes,
                       .text = "as scripted"};
  }
  Result<std::string> LoadWeights(const Say&) override { return std::string("none"); }
  Result<std::unique_ptr<Executor>> CreateExecutor(const ExecutorSize& size) override {
    return std::unique_ptr<Executor>(std::make_unique<ScriptedExecutor>(step_time_, size.max_slots, &time_, &script_));
  }

 private:
  const StepTimeModel& step_time_;
  const int64_t blocks_, swap_blocks_;
  GatedClock& time_;
  Script& script_;
};

}  // namespace tactus
