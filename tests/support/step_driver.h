// Drives an executor by hand, for tests: sequences, block tables and plans without an engine. The test defines every
// step, so that any chunking, mix, preemption, sharing or swapping can be forced.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/step.h"

namespace tactus::test {

class StepDriver {
 public:
  struct Sequence {
    std::shared_ptr<const Request> request;
    int32_t choice = 0;
    std::vector<TokenId> tokens;  // prompt, then output
    int32_t computed = 0;         // positions whose K and V are in the cache, or in the host's blocks
    std::vector<BlockId> table;
    std::vector<BlockId> host;  // blocks of a swapped-out sequence
    bool announced = false;     // the executor has received the start
    std::vector<StepResult::TokenLogprobs> logprobs, prompt_logprobs;
    ItemStatus status = ItemStatus::kOk;
    std::map<int32_t, std::vector<float>> logits;  // by position, when recorded

    int32_t prompt_size() const { return static_cast<int32_t>(request->prompt->size()); }
    std::vector<TokenId> output() const { return {tokens.begin() + prompt_size(), tokens.end()}; }
    int32_t pending() const { return static_cast<int32_t>(tokens.size()) - computed; }
  };
  struct Take {
    int32_t sequence;
    int32_t count;                // tokens to compute in this step
    std::vector<TokenId> drafts;  // guessed next tokens, computed with the last known token
  };
  using RunStep = std::function<void(const StepPlan&, StepResult*)>;

  StepDriver(RunStep run, int64_t num_blocks, int32_t block_size, int64_t swap_blocks = 0)
      : run_(std::move(run)), block_size_(block_size), users_(static_cast<size_t>(num_blocks)) {
    for (int64_t b = num_blocks; b-- > 0;) free_.push_back(static_cast<BlockId>(b));
    for (int64_t b = swap_blocks; b-- > 0;) free_host_.push_back(static_cast<BlockId>(b));
  }
  // Over a StepRunner. With `record`, stores the logits of every row in the plan.
  template <class Runner, class = decltype(&Runner::Run)>
  StepDriver(Runner& runner, int64_t num_blocks, int32_t block_size, bool record = false)
      : StepDriver([&runner](const StepPlan& plan, StepResult* result) { runner.Run(plan, result); }, num_blocks,
                   block_size) {
    if (!record) return;
    runner.set_logits_observer([this](int32_t item, int32_t position, std::span<const float> logits) {
      Sequence& s = at(plan_.items[static_cast<size_t>(item)].slot);
      s.logits[position].assign(logits.begin(), logits.end());
    });
  }

  // A sequence's id is its slot.
  int32_t Add(const Request& request, int32_t choice = 0) {
    Sequence s;
    s.request = std::make_shared<Request>(request);
    s.choice = choice;
    s.tokens = *request.prompt;
    sequences_.push_back(std::move(s));
    return static_cast<int32_t>(sequences_.size()) - 1;
  }
  Sequence& at(int32_t sequence) { return sequences_[static_cast<size_t>(sequence)]; }

  // Starts `sequence` on the first `blocks` full blocks of `from` (computed before, or by an item of the same step).
  void ShareBlocks(int32_t sequence, int32_t from, int32_t blocks) {
    Sequence& s = at(sequence);
    s.table.assign(at(from).table.begin(), at(from).table.begin() + blocks);
    for (const BlockId b : s.table) ++users_[static_cast<size_t>(b)];
    s.computed = blocks * block_size_;
  }
  // Adds a sequence with the tokens of `from` and its first `computed` positions: full blocks are shared, and the
  // next step copies the partial one.
  int32_t Fork(int32_t from, int32_t computed, int32_t choice = 0) {
    const int32_t fork = Add(*at(from).request, choice);
    ShareBlocks(fork, from, computed / block_size_);
    Sequence& s = at(fork);
    if (const int32_t rest = computed % block_size_; rest > 0) {
      const BlockId source = at(from).table[s.table.size()];
      s.table.push_back(Allocate());
      plan_.copies.push_back({source, s.table.back(), rest});
    }
    s.computed = computed;
    return fork;
  }
  // Drops all KV; the sequence computes everything again.
  void Preempt(int32_t sequence) {
    Release(sequence);
    at(sequence).computed = 0;
  }
  // Preempts the sequence and forgets its output.
  void Restart(int32_t sequence) {
    Preempt(sequence);
    Sequence& s = at(sequence);
    s.tokens = *s.request->prompt;
    s.logprobs.clear();
  }
  // The next step saves the sequence's blocks in the host's memory; later items of that step may use the blocks.
  void SwapOut(int32_t sequence) {
    Sequence& s = at(sequence);
    for (size_t i = 0; i < s.table.size(); ++i) {
      const int32_t tokens = std::min(block_size_, s.computed - static_cast<int32_t>(i) * block_size_);
      if (tokens < 1) break;
      s.host.push_back(free_host_.back());
      free_host_.pop_back();
      plan_.swap_outs.push_back({s.table[i], s.host.back(), tokens});
    }
    Release(sequence);
  }
  // The next step brings the sequence's blocks back.
  void SwapIn(int32_t sequence) {
    Sequence& s = at(sequence);
    for (size_t i = 0; i < s.host.size(); ++i) {
      s.table.push_back(Allocate());
      const int32_t tokens = std::min(block_size_, s.computed - static_cast<int32_t>(i) * block_size_);
      plan_.swap_ins.push_back({s.table.back(), s.host[i], tokens});
    }
    read_host_.insert(read_host_.end(), s.host.rbegin(), s.host.rend());
    s.host.clear();
  }
  int64_t free_host_blocks() const { return static_cast<int64_t>(free_host_.size()); }

  // One step. Logits of every row with all_rows, else only of the last known token (which is sampled).
  StepResult Step(const std::vector<Take>& takes, bool all_rows = false) {
    plan_.step = step_++;
    for (const Take& take : takes) AddItem(take, all_rows);
    StepResult result;
    run_(plan_, &result);
    plan_.Clear();
    free_host_.insert(free_host_.end(), read_host_.begin(), read_host_.end());
    read_host_.clear();
    if (!result.status.ok()) return result;
    for (size_t i = 0; i < takes.size(); ++i) {
      Sequence& s = at(takes[i].sequence);
      const ItemResult& item = result.items[i];
      s.computed += item.accepted;
      if (item.status != ItemStatus::kOk) s.status = item.status;
      for (int32_t t = 0; t < item.num_tokens; ++t)
        s.tokens.push_back(result.tokens[static_cast<size_t>(item.token_offset + t)]);
    }
    for (auto& l : result.logprobs) at(takes[static_cast<size_t>(l.item)].sequence).logprobs.push_back(l);
    for (auto& l : result.prompt_logprobs) at(takes[static_cast<size_t>(l.item)].sequence).prompt_logprobs.push_back(l);
    return result;
  }

  // The whole prompt, then one token at a time, until there are `tokens` output tokens or a step yields none.
  void Generate(int32_t sequence, int32_t tokens) {
    while (static_cast<int32_t>(at(sequence).output().size()) < tokens && at(sequence).status == ItemStatus::kOk) {
      const StepResult result = Step({{sequence, at(sequence).pending()}});
      if (!result.status.ok() || result.items[0].num_tokens == 0) return;
    }
  }

 private:
  void AddItem(const Take& take, bool all_rows) {
    Sequence& s = at(take.sequence);
    if (!s.announced) {
      plan_.starts.push_back(
          {.slot = take.sequence, .choice = s.choice, .sampling = SamplingOf(*s.request, s.output())});
      if (!s.table.empty()) AddUpdate(take.sequence, 0);
      s.announced = true;
    }
    const auto end = s.computed + take.count;
    const auto drafts = static_cast<int32_t>(take.drafts.size());
    const size_t had = s.table.size();
    while (static_cast<int32_t>(s.table.size()) * block_size_ < end + drafts) s.table.push_back(Allocate());
    if (s.table.size() > had) AddUpdate(take.sequence, had);
    StepItem item;
    item.slot = take.sequence;
    item.first_position = s.computed;
    item.count = take.count + drafts;
    item.draft_tokens = drafts;
    item.sample = end == static_cast<int32_t>(s.tokens.size());
    item.logit_rows = all_rows ? take.count : (item.sample ? 1 + drafts : 0);
    item.token_offset = static_cast<int32_t>(plan_.tokens.size());
    plan_.tokens.insert(plan_.tokens.end(), s.tokens.begin() + s.computed, s.tokens.begin() + end);
    plan_.tokens.insert(plan_.tokens.end(), take.drafts.begin(), take.drafts.end());
    plan_.items.push_back(item);
    plan_.num_tokens += item.count;
  }
  void AddUpdate(int32_t sequence, size_t first) {
    const Sequence& s = at(sequence);
    plan_.table_updates.push_back({sequence, static_cast<int32_t>(first), static_cast<int32_t>(s.table.size() - first),
                                   static_cast<int32_t>(plan_.table_blocks.size())});
    plan_.table_blocks.insert(plan_.table_blocks.end(), s.table.begin() + static_cast<int64_t>(first), s.table.end());
  }
  BlockId Allocate() {
    const BlockId block = free_.back();
    free_.pop_back();
    ++users_[static_cast<size_t>(block)];
    return block;
  }
  // Frees the blocks that no other sequence shares.
  void Release(int32_t sequence) {
    Sequence& s = at(sequence);
    for (const BlockId b : s.table) {
      if (--users_[static_cast<size_t>(b)] == 0) free_.push_back(b);
    }
    s.table.clear();
    s.announced = false;
  }

  RunStep run_;
  int32_t block_size_;
  StepPlan plan_;
  StepId step_ = 0;
  std::vector<BlockId> free_, free_host_;
  std::vector<BlockId> read_host_;  // free after this step: its swap-outs come before its swap-ins
  std::vector<int32_t> users_;      // of each block
  std::vector<Sequence> sequences_;
};

inline Request MakeRequest(std::vector<TokenId> prompt, const SamplingParams& sampling, int64_t max_tokens = 64) {
  Request request;
  request.prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
  request.sampling = sampling;
  request.stop.max_tokens = max_tokens;
  return request;
}
inline SamplingParams Greedy() {
  SamplingParams p;
  p.temperature = 0.0f;
  return p;
}
// Request `i` of several: greedy if `i` is even, else sampled by a seed, with penalties.
inline SamplingParams MixedSampling(size_t i) {
  SamplingParams p = Greedy();
  if (i % 2 == 0) return p;
  p.temperature = 1.3f;
  p.top_p = 0.9f;
  p.seed = 100 + i;
  p.frequency_penalty = 0.5f;
  p.repetition_penalty = 1.2f;
  return p;
}

}  // namespace tactus::test
