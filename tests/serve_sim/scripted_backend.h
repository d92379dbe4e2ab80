// A backend whose steps take as long as a simulation's, by the simulation's own executor: for the engine it is a device
// with tokens, which answers item by item with letters.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/backend.h"
#include "base/hash.h"
#include "gated_clock.h"
#include "sim/sim_executor.h"

namespace tactus {

// Everything that an executor is told of a step but token ids, in a line.
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

// What the executor of a run did and does, for the driver. Any thread.
class ScriptLog {
 public:
  void Planned(const StepPlan& plan, TimeNs ready_ns) {
    std::lock_guard lock(mutex_);
    plans_.push_back(PlanText(plan));
    ready_ns_ = ready_ns;
  }
  void Ready(TimeNs ready_ns) {
    std::lock_guard lock(mutex_);
    ready_ns_ = ready_ns;
  }
  TimeNs ready_ns() const {
    std::lock_guard lock(mutex_);
    return ready_ns_;
  }
  std::vector<std::string> plans() const {
    std::lock_guard lock(mutex_);
    return plans_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> plans_;
  TimeNs ready_ns_ = kNever;
};

class ScriptedExecutor final : public Executor {
 public:
  ScriptedExecutor(const StepTimeModel& step_time, int32_t max_slots, ManualClock* clock, GatedClock* time,
                   ScriptLog* log)
      : clock_(*clock),
        time_(*time),
        log_(*log),
        inner_({.step_time = &step_time, .clock = clock, .max_slots = max_slots}) {}

  ExecutorTraits traits() const override {
    ExecutorTraits traits = inner_.traits();
    traits.has_tokens = true;
    traits.name = "scripted";
    return traits;
  }
  void Submit(const StepPlan& plan) override {
    clock_.AdvanceTo(time_.Peek());
    plans_.push_back(&plan);
    inner_.Submit(plan);
    log_.Planned(plan, inner_.NextReadyNs());
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
      const int32_t tokens = item.sample ? 1 : 0;
      result->items.push_back({ItemStatus::kOk, item.count, static_cast<int32_t>(result->tokens.size()), tokens});
      if (item.sample) result->tokens.push_back('a' + static_cast<TokenId>(MixHash(drawn_++, 7) % 26));
    }
    log_.Ready(inner_.NextReadyNs());
    return true;
  }
  void SetWakeup(std::function<void()>) override {}  // the gate tells the loop
  TimeNs NextReadyNs() const override { return inner_.NextReadyNs(); }

 private:
  ManualClock& clock_;  // the simulated executor's, which asks on the engine's thread
  GatedClock& time_;
  ScriptLog& log_;
  SimExecutor inner_;
  std::vector<const StepPlan*> plans_;
  StepResult short_form_;
  uint64_t drawn_ = 0;
};

class ScriptedBackend final : public Backend {
 public:
  // `blocks` and `swap_blocks`: the memory there is. All outlive the backend.
  ScriptedBackend(const StepTimeModel& step_time, int64_t blocks, int64_t swap_blocks, GatedClock* time, ScriptLog* log)
      : step_time_(step_time), blocks_(blocks), swap_blocks_(swap_blocks), time_(*time), log_(*log) {}

  BackendInfo Info() const override {
    BackendInfo info;
    info.devices = {{"a script", -1}};
    info.kernels = info.arithmetic = info.summary = "scripted";
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
    return std::unique_ptr<Executor>(
        std::make_unique<ScriptedExecutor>(step_time_, size.max_slots, &clock_, &time_, &log_));
  }

 private:
  const StepTimeModel& step_time_;
  const int64_t blocks_, swap_blocks_;
  GatedClock& time_;
  ScriptLog& log_;
  ManualClock clock_;
};

}  // namespace tactus
