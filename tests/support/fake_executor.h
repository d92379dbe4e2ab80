// Executors without a model. FakeExecutor implements the step contract exactly over a simulated KV memory: the tokens
// that it "samples" depend on every position that a sequence reads through its block table, so that wrong sharing, a
// missing copy, a stale block or a lost position changes the output. NullExecutor completes at once and does nothing,
// for measuring the engine. Thread rule: engine thread only; they start no threads.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/plan_limits.h"
#include "base/rng.h"
#include "base/token_grammar.h"
#include "core/interfaces/draft_source.h"

namespace tactus {

struct FakeExecutorConfig {
  int32_t max_in_flight = 1;
  bool can_chain = false;
  int32_t max_draft_tokens = 0;
  uint64_t seed = 1;                  // of the "model", not of faults
  int32_t vocab_size = 64;            // sampled tokens are in [0, vocab_size)
  std::vector<std::string> adapters;  // each acts as another model
  int64_t num_blocks = 0;
  int32_t block_size = 16;
  int32_t max_slots = 0;
  int64_t swap_blocks = 0;  // of the simulated host memory
  int64_t max_step_tokens = INT64_MAX, max_step_items = INT64_MAX;
  int32_t max_model_len = INT32_MAX;
  int32_t input_vocab_size = INT32_MAX;  // an item with an input token outside [0, input_vocab_size) fails
  // Samples by the seed if the temperature is above 0, only what the grammar allows, no end too early. Ignores
  // penalties and top_p. False: the tokens of Expected for every spec.
  bool follows_specs = false;
  bool has_logprobs = true, has_grammars = true;  // false: refuses plans that need them
  // Steps take time by the clock, one after the other. Null clock: every step is ready at once.
  Clock* clock = nullptr;
  DurationNs step_base_ns = kMillisecond;
  DurationNs step_token_ns = 10 * kMicrosecond;
  // Faults, drawn from a separate random stream.
  uint64_t fault_seed = 1;
  double step_error_rate = 0;   // the whole step fails and writes garbage
  StepId device_fails_at = -1;  // >= 0: from this step on every step fails for good
  double item_error_rate = 0;   // an item's logits are not finite
  double item_lost_rate = 0;    // an item fails and writes garbage, so that sequences that read it get other tokens
  double reject_rate = 0;       // of items with several tokens: only the first few positions are accepted
};

class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(const FakeExecutorConfig& config);
  ~FakeExecutor() override;

  ExecutorTraits traits() const override;
  void Submit(const StepPlan& plan) override;
  bool Poll(StepResult* result) override;
  void SetWakeup(std::function<void()> wakeup) override { wakeup_ = std::move(wakeup); }
  TimeNs NextReadyNs() const override;
  int64_t kv_block_bytes() const override { return config_.block_size * static_cast<int64_t>(sizeof(uint64_t)); }
  void ReadKvBlock(BlockId block, std::byte* to) const override;
  void WriteHostBlock(BlockId host_block, const std::byte* from) override;

  // First violation of the step contract by plans; empty: none. A plan that CheckPlan refuses is a violation too.
  const std::string& violation() const { return violation_; }
  int64_t steps() const { return steps_; }

  // The next token of the slot's sequence after `tokens`.
  TokenId Next(SlotId slot, const std::vector<TokenId>& tokens) const;
  int64_t drafts_accepted() const { return drafts_accepted_; }
  int64_t drafts_rejected() const { return drafts_rejected_; }

  // The next token that a correct engine gets after prompt + output, under any schedule.
  static TokenId Expected(const FakeExecutorConfig& config, const std::vector<TokenId>& tokens, int32_t choice,
                          int32_t adapter = 0);

 private:
  struct Slot {
    bool live = false;
    int32_t choice = 0;
    int32_t adapter = 0;
    SamplingSpec sampling;
    std::unique_ptr<GrammarState> grammar;
    std::vector<BlockId> table;
    TokenId last_token = -1;  // sampled by the slot's previous item, for chained inputs
  };
  struct Pending {
    StepResult result;
    TimeNs ready_ns = 0;
  };
  void Start(const SequenceStart& start);
  void ApplyTables(const StepPlan& plan);
  void RunCopies(const StepPlan& plan, bool failed);
  bool WriteItem(const StepPlan& plan, const StepItem& item, bool garbage);
  bool SampleNext(Slot* slot, uint64_t attended, int32_t position);
  void PromptLogprobs(const StepItem& item, int32_t index, StepResult* result);
  void RunPlan(const StepPlan& plan, StepResult* result);
  void Verify(const StepPlan& plan, const StepItem& item, StepResult* result, ItemResult* out);
  void RunItem(const StepPlan& plan, size_t index, StepResult* result);
  uint64_t* Cell(const Slot& slot, int32_t position);
  void Violate(const std::string& what);

  const FakeExecutorConfig config_;
  const PlanLimits limits_;
  Rng faults_;
  std::vector<uint64_t> memory_;  // [num_blocks * block_size], in place of K and V of a position
  std::vector<uint64_t> host_;    // [swap_blocks * block_size]
  std::vector<Slot> slots_;
  std::deque<Pending> pending_;
  std::vector<StepResult> spare_;
  TimeNs last_ready_ns_ = 0;
  int64_t steps_ = 0, drafts_accepted_ = 0, drafts_rejected_ = 0;
  std::vector<bool> lost_;     // per item of the current step
  std::vector<size_t> order_;  // its items in order of position
  std::string violation_;
  std::function<void()> wakeup_;
};

// Guesses a random number of tokens, each right with probability `accuracy`. In one call of four it makes no guesses,
// and the sequence may chain. Its chance is kSureDraft or random.
class GuessingDrafts final : public core::DraftSource {
 public:
  GuessingDrafts(const FakeExecutor* executor, double accuracy, uint64_t seed)
      : executor_(*executor), accuracy_(accuracy), rng_(seed, 78) {}
  void Begin(SlotId slot, const Request& request, std::span<const TokenId> output) override;
  void End(SlotId slot) override;
  void Propose(std::span<core::DraftTask> tasks) override;
  // First violation of the contract by the loop; empty: none.
  const std::string& violation() const { return violation_; }
  size_t live() const { return live_.size(); }
  int64_t unpaid() const { return unpaid_; }  // tasks with a least_chance above 1

 private:
  const FakeExecutor& executor_;
  const double accuracy_;
  Rng rng_;
  std::map<SlotId, std::vector<TokenId>> live_;  // the tokens in each sequence's last task
  int64_t unpaid_ = 0;
  std::string violation_;
};

// Every step is ready at once; each sampled token is `token`. `short_form`: results have no tokens but as_planned, as
// in simulations.
class NullExecutor final : public Executor {
 public:
  explicit NullExecutor(int32_t max_in_flight = 1, bool can_chain = false, TokenId token = 7, bool short_form = false);
  ExecutorTraits traits() const override { return traits_; }
  void Submit(const StepPlan& plan) override;
  bool Poll(StepResult* result) override;
  void SetWakeup(std::function<void()>) override {}

 private:
  const ExecutorTraits traits_;
  const TokenId token_;
  std::vector<const StepPlan*> ring_;
  size_t head_ = 0, count_ = 0;
};

}  // namespace tactus
