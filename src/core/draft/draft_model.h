// Guesses of a second, smaller model of the same vocabulary (Leviathan et al. 2023, "Fast Inference from Transformers
// via Speculative Decoding"), greedy. It has an executor and KV blocks of its own. All sequences that want guesses go
// through it together: one step that computes what it has not seen of each and yields the first guess, then one step
// for every further guess.
//
// It is synchronous: the engine's thread waits for these steps, which are short beside those of the model that is
// served, and compute on the cores that stand idle meanwhile. A prompt that is longer than a step enters piece by
// piece, one at each call; until it is through, its sequence has no guesses.
//
// Guesses that no step verifies are made for nothing, so a sequence gets at most twice as many as tokens came after the
// last ones. How likely guesses are is measured, for each sequence: how many came, whether or not they were verified.
// One whose guesses are seldom right is left alone and tried again later. So is one for which no KV block is left.
//
// A guess must be worth what the scheduler wants of it (DraftTask::least_chance) and this model's own time: a round of
// guesses, one for each sequence, takes a share of a step of the model that is served. Both times are measured. Where
// guesses are not worth it nothing is computed; what was missed meanwhile is made up for once they are. A time that
// keeps all from guessing is believed less with every call, until guesses measure it again.
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
  // `size` is the executor's; `backend` may be null where the executor needs none. `vocab_size`: tokens that both
  // models know. `most`: guesses of one sequence.
  DraftModel(std::unique_ptr<Backend> backend, std::unique_ptr<Executor> executor, const ExecutorSize& size,
             int32_t vocab_size, int32_t most);
  ~DraftModel() override;

  void Begin(SlotId slot, const Request& request, std::span<const TokenId> output) override;
  void End(SlotId slot) override;
  void Propose(std::span<DraftTask> tasks) override;

  int64_t blocks_free() const { return static_cast<int64_t>(free_blocks_.size()); }

 private:
  struct Sequence {
    std::vector<BlockId> blocks;   // its table
    std::vector<TokenId> guesses;  // its last ones, which begin at position `guessed_at`
    int32_t guessed_at = 0;        // tokens that were known then
    int32_t computed = 0;          // leading positions whose KV is of the text as it is now
    int32_t rests_until = 0;       // known tokens
    int32_t wanted = 0;            // guesses, next time
    double right = 0, all = 0;     // of its guesses, later ones counting more
    bool begun = false, started = false;
  };
  struct Job {
    DraftTask* task = nullptr;
    Sequence* sequence = nullptr;
    int32_t known = 0;
    TokenId last = 0;  // guess
    int32_t most = 0;  // guesses
    bool runs = true;
  };

  void Learn(const DraftTask& task, Sequence* sequence);
  bool Cover(SlotId slot, int32_t tokens, Sequence* sequence);
  void AddItem(Job* job, int32_t first, int32_t count, bool sample);
  bool Run();
  // A round's share of a step of the model that is served; 0: not known.
  double OwnCost() const { return step_ns_ > 0 ? round_ns_ / step_ns_ : 0; }
  static TokenId TokenAt(const DraftTask& task, int32_t position);

  const std::unique_ptr<Backend> backend_;  // outlives the executor
  const std::unique_ptr<Executor> executor_;
  const ExecutorSize size_;
  const int32_t vocab_size_;
  const int32_t most_;
  std::vector<Sequence> sequences_;  // by slot
  std::vector<BlockId> free_blocks_;
  std::vector<Job> jobs_;  // of this call
  StepPlan plan_;
  StepResult result_;
  StepId next_step_ = 0;
  double round_ns_ = 0, step_ns_ = 0;  // of a round of guesses, and from a call's end to the next one; 0: not known
  bool forgets_ = false;               // round_ns_ is less than what was measured
  double forget_time_;                 // by how much with each call
  TimeNs last_end_ns_ = kNever;        // of the call before; kNever: it computed nothing
  std::mutex mutex_;
  std::condition_variable wake_;
  bool woken_ = false;  // under mutex_
};

}  // namespace tactus::core
