// A decorator that makes chosen steps of another executor fail, for tests of the callers of executors. Every plan
// reaches the inner executor, so block tables and histories stay right; only the result changes. Thread rule: as the
// inner executor's.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/executor.h"

namespace tactus {

struct InjectedFault {
  enum class Kind : uint8_t {
    kStep,       // StepResult::status is kInternal, "injected fault"
    kBadLogits,  // item `item` reports kBadLogits
    kItem,       // item `item` reports kFailed
    kNoTokens,   // the items keep their results, but the token ids are missing
  };
  int64_t step = 0;  // number of the result, from 0
  Kind kind = Kind::kStep;
  int32_t item = 0;  // no such item: no effect
};

class FaultyExecutor final : public Executor {
 public:
  FaultyExecutor(std::unique_ptr<Executor> inner, std::vector<InjectedFault> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  ExecutorTraits traits() const override { return inner_->traits(); }
  void Submit(const StepPlan& plan) override { inner_->Submit(plan); }
  bool Poll(StepResult* result) override;
  void SetWakeup(std::function<void()> wakeup) override { inner_->SetWakeup(std::move(wakeup)); }
  TimeNs NextReadyNs() const override { return inner_->NextReadyNs(); }
  int64_t kv_block_bytes() const override { return inner_->kv_block_bytes(); }
  void ReadKvBlock(BlockId block, std::byte* to) const override { inner_->ReadKvBlock(block, to); }
  void WriteHostBlock(BlockId block, const std::byte* from) override { inner_->WriteHostBlock(block, from); }

 private:
  std::unique_ptr<Executor> inner_;
  std::vector<InjectedFault> faults_;
  int64_t polled_ = 0;
};

}  // namespace tactus
