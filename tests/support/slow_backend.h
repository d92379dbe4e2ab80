// A backend with a pause before each step, so that a request to a tiny model lasts long enough for a test's actions.
// Thread rule: as the inner backend's.
#pragma once

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "base/backend.h"

namespace tactus {

class SlowExecutor final : public Executor {
 public:
  SlowExecutor(std::unique_ptr<Executor> inner, std::chrono::microseconds pause)
      : inner_(std::move(inner)), pause_(pause) {}
  ExecutorTraits traits() const override { return inner_->traits(); }
  void Submit(const StepPlan& plan) override {
    std::this_thread::sleep_for(pause_);
    inner_->Submit(plan);
  }
  bool Poll(StepResult* result) override { return inner_->Poll(result); }
  void SetWakeup(std::function<void()> wakeup) override { inner_->SetWakeup(std::move(wakeup)); }
  int64_t kv_block_bytes() const override { return inner_->kv_block_bytes(); }
  void ReadKvBlock(BlockId block, std::byte* to) const override { inner_->ReadKvBlock(block, to); }
  void WriteHostBlock(BlockId block, const std::byte* from) override { inner_->WriteHostBlock(block, from); }

 private:
  std::unique_ptr<Executor> inner_;
  const std::chrono::microseconds pause_;
};

class SlowBackend final : public Backend {
 public:
  SlowBackend(std::unique_ptr<Backend> inner, std::chrono::microseconds pause)
      : inner_(std::move(inner)), pause_(pause) {}
  BackendInfo Info() const override { return inner_->Info(); }
  Result<MemoryGrant> PlanMemory(const MemoryDemand& demand) const override { return inner_->PlanMemory(demand); }
  Result<std::string> LoadWeights(const Say& say) override { return inner_->LoadWeights(say); }
  Result<std::unique_ptr<Executor>> CreateExecutor(const ExecutorSize& size) override {
    TACTUS_ASSIGN_OR_RETURN(auto executor, inner_->CreateExecutor(size));
    return std::unique_ptr<Executor>(std::make_unique<SlowExecutor>(std::move(executor), pause_));
  }

 private:
  std::unique_ptr<Backend> inner_;
  const std::chrono::microseconds pause_;
};

}  // namespace tactus
