// The contract over the fake executor: with all that the contract has, and with nothing beyond greedy steps.
#include "contract/backends.h"

namespace tactus::contract {
namespace {

// Hides the fake executor's functions for blocks as bytes.
class WithoutMoves final : public Executor {
 public:
  explicit WithoutMoves(const FakeExecutorConfig& config) : fake_(config) {}
  ExecutorTraits traits() const override { return fake_.traits(); }
  void Submit(const StepPlan& plan) override { fake_.Submit(plan); }
  bool Poll(StepResult* result) override { return fake_.Poll(result); }
  void SetWakeup(std::function<void()> wakeup) override { fake_.SetWakeup(std::move(wakeup)); }

 private:
  FakeExecutor fake_;
};

Backend PlainBackend() {
  Backend backend = FakeBackend();
  backend.name = "PlainFakeExecutor";
  backend.make = [](const ExecutorSize& size, int32_t max_in_flight) -> Result<std::unique_ptr<Executor>> {
    FakeExecutorConfig config = FakeConfig(size, max_in_flight);
    config.can_chain = config.has_logprobs = config.has_grammars = false;
    config.max_draft_tokens = 0;
    return std::unique_ptr<Executor>(std::make_unique<WithoutMoves>(config));
  };
  backend.chains = backend.drafts = backend.logprobs = backend.grammars = backend.swaps = backend.moves = false;
  return backend;
}

[[maybe_unused]] const bool kFake = Register(FakeBackend());
[[maybe_unused]] const bool kPlainFake = Register(PlainBackend());

}  // namespace
}  // namespace tactus::contract
