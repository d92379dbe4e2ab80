// Greedy guesses of a second, smaller model of the same vocabulary, the draft model (Leviathan et al. 2023, "Fast
// Inference from Transformers via Speculative Decoding"). It has its own executor and KV blocks. All sequences that
// need guesses are batched: one step computes the tokens of each that the draft model lacks and yields the first
// guesses, then one step follows for every further guess.
//
// Propose is synchronous: the engine thread waits for these steps. They are short compared with steps of the served
// model, and run on the cores that are idle meanwhile. A prompt longer than a step is computed in chunks, one per call;
// until then its sequence has no guesses.
//
// Guesses that no step verifies are wasted, so a sequence gets at most twice as many guesses as it got tokens since the
// last ones. The chance of a guess is measured per sequence, verified or not. A sequence whose guesses are rarely right
// is skipped and retried later; so is one for which no KV block is free.
//
// The chance of a guess must exceed the scheduler's threshold (DraftTask::least_chance) plus the draft model's own
// cost: the time of a round of guesses, one per sequence, over that of a step of the served model. Both times are
// measured. A sequence below the sum is not computed; it catches up once it is above. A measured time that stops all
// guessing decays with every call, until a round measures it again.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/backend.h"
#include "base/executor.h"
#include "core/interfaces/draft_source.h"

namespace tactus::core {

class DraftModel final : public DraftSource {
 public:
  // `size`: of the executor; `backend`: null if the executor needs none. `vocab_size`: tokens that both models have.
  // `most`: most guesses per sequence and call.
  DraftModel(std::unique_ptr<Backend> backend, std::unique_ptr<Executor> executor, const ExecutorSize& size,
             int32_t vocab_size, int32_t most);
  ~DraftModel() override;

  void Begin(SlotId slot, const Request& request, std::span<const TokenId> output) override;
  void End(SlotId slot) override;
  void Propose(std::span<DraftTask> tasks) override;

  int64_t blocks_free() const { return static_cast<int64_t>(free_blocks_.size()); }

 private:
  struct Sequence {
    std::vector<BlockId> blocks;   // block table
    std::vector<TokenId> guesses;  // the last guesses, from position `guessed_at` on
    int32_t guessed_at = 0;        // tokens known when they were made
    int32_t computed = 0;          // leading positions whose KV matches the text
    int32_t rests_until = 0;       // no guesses until this many tokens are known
    int32_t wanted = 0;            // most guesses in the next call
    double right = 0, all = 0;     // decayed counts of its guesses
    bool begun = false, started = false;
  };
  struct Job {
    DraftTask* task = nullptr;
    Sequence* sequence = nullptr;
    int32_t known = 0;
    TokenId last = 0;  // last guess
    int32_t most = 0;  // most guesses
    bool runs = true;
  };

  void Learn(const DraftTask& task, Sequence* sequence);
  bool Cover(SlotId slot, int32_t tokens, Sequence* sequence);
  void AddItem(Job* job, int32_t first, int32_t count, bool sample);
  bool Run();
  bool Promising(DraftTask* task, Sequence* sequence, int32_t known);
  void AddJob(DraftTask* task, Sequence* sequence, int32_t known);
  void DecayRoundTime();
  void TakeGuesses(int32_t round, bool ran);
  void PlanNextRound();
  void RunRounds();
  // Time of a round over that of a step of the served model; 0: not known.
  double OwnCost() const { return step_ns_ > 0 ? round_ns_ / step_ns_ : 0; }
  static TokenId TokenAt(const DraftTask& task, int32_t position);

  const std::unique_ptr<Backend> backend_;  // outlives the executor
  const std::unique_ptr<Executor> executor_;
  const ExecutorSize size_;
  const int32_t vocab_size_;
  const int32_t most_;
  std::vector<Sequence> sequences_;  // by slot
  std::vector<BlockId> free_blocks_;
  std::vector<Job> jobs_;  // of the current call
  bool too_slow_ = false;  // in the current call, for a sequence above the scheduler's threshold
  StepPlan plan_;
  StepResult result_;
  StepId next_step_ = 0;
  // Mean times of a round of guesses, and from the end of a call to the next call; 0: not known.
  double round_ns_ = 0, step_ns_ = 0;
  bool forgets_ = false;         // round_ns_ has decayed below the measured time
  double forget_time_;           // share of round_ns_ that it loses per call
  TimeNs last_end_ns_ = kNever;  // of the previous call; kNever: it computed nothing
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;  // under mutex_
};

}  // namespace tactus::core
