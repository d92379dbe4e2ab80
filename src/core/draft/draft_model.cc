#include "core/draft/draft_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace tactus::core {
namespace {

constexpr double kKeep = 0.9;  // decay per guess: an estimate's memory is 1 / (1 - keep) guesses
constexpr double kPrior = 0.6, kPriorTokens = 2;
constexpr double kLeastChance = 0.3;  // below it a sequence gets no guesses for kRestTokens tokens
constexpr int32_t kRestTokens = 32;
constexpr int32_t kFirstGuesses = 4, kLeastGuesses = 2;
constexpr double kTimeKeep = 1.0 / 8;  // weight of a new time in the mean
constexpr double kForget = 0.02;       // share of the estimate that returns to the prior in a call without guesses
// Decay of a round's time per call in which that time stopped all guessing. Halved by a call that guesses after a
// decay, because the tokens missed meanwhile cost time; times kForgetMore by other calls that guess.
constexpr double kForgetTime = 0.008, kLeastForgetTime = kForgetTime / 64, kForgetMore = 1.1;

// Running mean. A value counts as at most twice and at least half the mean, because other load may delay a step.
void Average(DurationNs measured, double* mean) {
  const auto value = static_cast<double>(measured);
  if (value <= 0) return;
  *mean = *mean == 0 ? value : *mean + (std::clamp(value, *mean / 2, *mean * 2) - *mean) * kTimeKeep;
}

}  // namespace

DraftModel::DraftModel(std::unique_ptr<Backend> backend, std::unique_ptr<Executor> executor, const ExecutorSize& size,
                       int32_t vocab_size, int32_t most)
    : backend_(std::move(backend)),
      executor_(std::move(executor)),
      size_(size),
      vocab_size_(vocab_size),
      most_(most),
      sequences_(static_cast<size_t>(size.max_slots)),
      forget_time_(kForgetTime) {
  free_blocks_.reserve(static_cast<size_t>(size.num_blocks));
  for (int64_t b = size.num_blocks; b-- > 0;) free_blocks_.push_back(static_cast<BlockId>(b));
  jobs_.reserve(static_cast<size_t>(size.max_step_items));
  executor_->SetWakeup([this] {
    std::lock_guard<std::mutex> lock(mutex_);
    woken_ = true;
    wake_.notify_one();
  });
}

DraftModel::~DraftModel() = default;

void DraftModel::Begin(SlotId slot, const Request& request, std::span<const TokenId>) {
  Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  TACTUS_CHECK(!sequence.begun && sequence.blocks.empty());
  sequence.begun = true;
  sequence.right = kPrior * kPriorTokens;
  sequence.all = kPriorTokens;
  sequence.wanted = std::min(kFirstGuesses, most_);
  const auto longest =
      std::min<int64_t>(static_cast<int64_t>(request.prompt->size()) + request.stop.max_tokens, size_.max_model_len);
  sequence.blocks.reserve(static_cast<size_t>((longest + size_.block_size - 1) / size_.block_size));
  sequence.guesses.reserve(static_cast<size_t>(most_));
}

void DraftModel::End(SlotId slot) {
  Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  free_blocks_.insert(free_blocks_.end(), sequence.blocks.rbegin(), sequence.blocks.rend());
  sequence = {};
}

TokenId DraftModel::TokenAt(const DraftTask& task, int32_t position) {
  const auto prompt = static_cast<int32_t>(task.prompt.size());
  return position < prompt ? task.prompt[static_cast<size_t>(position)]
                           : task.output[static_cast<size_t>(position - prompt)];
}

// Compares the last guesses with the tokens that came. The next call makes at most twice as many guesses as tokens
// came: each guess costs a step, and that many show whether more would be right.
void DraftModel::Learn(const DraftTask& task, Sequence* sequence) {
  const auto known = static_cast<int32_t>(task.prompt.size() + task.output.size());
  int32_t hits = 0;
  for (const TokenId guess : sequence->guesses) {
    if (sequence->guessed_at + hits >= known) break;
    const bool hit = TokenAt(task, sequence->guessed_at + hits) == guess;
    sequence->right = sequence->right * kKeep + (hit ? 1 : 0);
    sequence->all = sequence->all * kKeep + 1;
    if (!hit) break;
    ++hits;
  }
  sequence->computed = std::min(sequence->computed, sequence->guessed_at + hits);
  if (!sequence->guesses.empty())
    sequence->wanted = std::clamp(2 * (known - sequence->guessed_at), std::min(kLeastGuesses, most_), most_);
  sequence->guesses.clear();
}

// Allocates blocks for `tokens` tokens. False: not enough are free.
bool DraftModel::Cover(SlotId slot, int32_t tokens, Sequence* sequence) {
  const auto have = static_cast<int32_t>(sequence->blocks.size());
  const int32_t need = (tokens + size_.block_size - 1) / size_.block_size - have;
  if (need > static_cast<int32_t>(free_blocks_.size())) return false;
  if (need <= 0) return true;
  plan_.table_updates.push_back({slot, have, need, static_cast<int32_t>(plan_.table_blocks.size())});
  for (int32_t i = 0; i < need; ++i) {
    sequence->blocks.push_back(free_blocks_.back());
    plan_.table_blocks.push_back(free_blocks_.back());
    free_blocks_.pop_back();
  }
  return true;
}

void DraftModel::AddItem(Job* job, int32_t first, int32_t count, bool sample) {
  StepItem& item = plan_.items.emplace_back();
  item.slot = job->task->slot;
  item.first_position = first;
  item.count = count;
  item.sample = sample;
  item.logit_rows = sample ? 1 : 0;
  item.token_offset = static_cast<int32_t>(plan_.tokens.size());
  for (int32_t i = 0; i < count; ++i) {
    const TokenId token = first + i < job->known ? TokenAt(*job->task, first + i) : job->last;
    plan_.tokens.push_back(token < vocab_size_ ? token : 0);  // a token outside the vocabulary only makes guesses worse
  }
  plan_.num_tokens += count;
}

// Runs plan_ into result_. False: the step failed.
bool DraftModel::Run() {
  plan_.step = next_step_++;
  executor_->Submit(plan_);
  while (!executor_->Poll(&result_)) {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [this] { return woken_; });
    woken_ = false;
  }
  return result_.status.ok() && result_.items.size() == plan_.items.size();
}

// Whether guesses are likely enough to be right. Sets what the scheduler must know of the sequence's guesses.
bool DraftModel::Promising(DraftTask* task, Sequence* sequence, int32_t known) {
  if (task->waits || known < sequence->rests_until || known + most_ > size_.max_model_len) return false;
  const double chance = sequence->right / sequence->all;
  if (chance < kLeastChance) {
    sequence->rests_until = known + kRestTokens;
    sequence->right += 1;  // so that it is retried after the rest
    sequence->all += 1;
    return false;
  }
  if (chance < task->least_chance + OwnCost()) {
    too_slow_ = too_slow_ || chance >= task->least_chance;
    // Returns slowly to the prior; otherwise a low chance would be permanent.
    sequence->right += (kPrior * sequence->all - sequence->right) * kForget;
    return false;
  }
  task->kind = DraftKind::kModel;
  task->chance = static_cast<DraftChance>(std::min<int64_t>(kSureDraft - 1, std::llround(chance * kSureDraft)));
  return true;
}

// Adds the tokens that the draft model lacks to the plan, as many as fit. No effect without room or blocks.
void DraftModel::AddJob(DraftTask* task, Sequence* sequence, int32_t known) {
  const int64_t left = size_.max_step_tokens - plan_.num_tokens;
  if (left < 1 || static_cast<int32_t>(jobs_.size()) == size_.max_step_items) return;
  const int32_t first = std::min(sequence->computed, known - 1);
  const auto count = static_cast<int32_t>(std::min<int64_t>(known - first, left));
  const bool through = first + count == known;
  if (!Cover(task->slot, through ? known + most_ : first + count, sequence)) return;
  if (!std::exchange(sequence->started, true)) {
    SequenceStart& start = plan_.starts.emplace_back();
    start.slot = task->slot;
    start.sampling.max_tokens = static_cast<int32_t>(size_.max_model_len);
  }
  const int32_t most = std::min(task->most, sequence->wanted);
  Job& job = jobs_.emplace_back(Job{.task = task, .sequence = sequence, .known = known, .most = most, .runs = through});
  AddItem(&job, first, count, through);
  sequence->computed = first + count;
  task->waits = true;
}

// Only guessing measures times, so without the decay one slow sample would disable the draft model permanently.
void DraftModel::DecayRoundTime() {
  if (too_slow_ && jobs_.empty()) {
    round_ns_ *= 1 - forget_time_;
    forgets_ = true;
  } else if (!jobs_.empty()) {
    forget_time_ = std::clamp(forget_time_ * (forgets_ ? 0.5 : kForgetMore), kLeastForgetTime, kForgetTime);
    if (std::exchange(forgets_, false)) round_ns_ = 0;  // measured again
  }
}

// Adds the guesses of the round's result to the tasks. `ran`: whether its step succeeded.
void DraftModel::TakeGuesses(int32_t round, bool ran) {
  size_t at = 0;
  for (Job& job : jobs_) {
    if (round > 0 && !job.runs) continue;  // it has no item
    const ItemResult* const r = ran ? &result_.items[at++] : nullptr;
    if (r == nullptr || r->status != ItemStatus::kOk) {
      job.sequence->computed = 0;  // its KV is unknown
      job.runs = false;
    } else if (job.runs) {
      job.last = result_.tokens[static_cast<size_t>(r->token_offset)];
      job.runs = job.last < vocab_size_;
      if (job.runs) job.task->tokens->push_back(job.last);
      job.runs = job.runs && static_cast<int32_t>(job.task->tokens->size()) < job.most;
    }
  }
}

// Plans one token more of each sequence that needs further guesses.
void DraftModel::PlanNextRound() {
  plan_.Clear();
  for (Job& job : jobs_) {
    if (!job.runs) continue;
    const auto guesses = static_cast<int32_t>(job.task->tokens->size());
    AddItem(&job, job.known + guesses - 1, 1, true);
    job.sequence->computed = job.known + guesses;
  }
}

void DraftModel::RunRounds() {
  int32_t rounds = 0;
  for (const Job& job : jobs_) rounds = std::max(rounds, job.most);
  const TimeNs before_ns = std::exchange(last_end_ns_, kNever);
  for (int32_t round = 0; round < rounds && !plan_.items.empty(); ++round) {
    const bool ran = Run();
    if (ran) {
      if (round == 0 && before_ns != kNever) Average(result_.start_ns - before_ns, &step_ns_);
      const bool catches_up = plan_.num_tokens > 2 * static_cast<int64_t>(plan_.items.size());
      if (!catches_up) Average(result_.end_ns - result_.start_ns, &round_ns_);
    }
    last_end_ns_ = result_.end_ns;
    TakeGuesses(round, ran);
    PlanNextRound();
  }
}

void DraftModel::Propose(std::span<DraftTask> tasks) {
  jobs_.clear();
  plan_.Clear();
  too_slow_ = false;
  for (DraftTask& task : tasks) {
    Sequence& sequence = sequences_[static_cast<size_t>(task.slot)];
    const auto known = static_cast<int32_t>(task.prompt.size() + task.output.size());
    Learn(task, &sequence);
    if (!Promising(&task, &sequence, known)) continue;
    if (task.most == 0) {
      task.waits = true;
    } else {
      AddJob(&task, &sequence, known);
    }
  }
  DecayRoundTime();
  RunRounds();
  for (const Job& job : jobs_) {
    job.sequence->guessed_at = job.known;
    job.sequence->guesses = *job.task->tokens;
  }
}

}  // namespace tactus::core
