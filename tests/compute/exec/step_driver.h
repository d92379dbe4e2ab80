// Drives an executor by hand, for tests: sequences, block tables and plans without an engine. The test defines every
// step, so that any chunking, mix, preemption or sharing can be forced.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/check.h"
#include "compute/exec/step_runner.h"

namespace tactus::test {

class StepDriver {
 public:
  struct Sequence {
    std::shared_ptr<const Request> request;
    int32_t choice = 0;
    std::vector<TokenId> tokens;  // prompt, then output
    int32_t computed = 0;         // positions whose K and V are in the cache
    std::vector<BlockId> table;
    bool announced = false;  // the executor has received the start
    std::vector<StepResult::TokenLogprobs> logprobs;
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

  StepDriver(RunStep run, int64_t num_blocks, int32_t block_size) : run_(std::move(run)), block_size_(block_size) {
    for (int64_t b = num_blocks; b-- > 0;) free_.push_back(static_cast<BlockId>(b));
  }
  // With `record`, stores the logits of every row in the plan.
  StepDriver(compute::StepRunner& runner, int64_t num_blocks, int32_t block_size, bool record = false)
      : StepDriver([&runner](const StepPlan& plan, StepResult* result) { runner.Run(plan, result); }, num_blocks,
                   block_size) {
    if (!record) return;
    runner.set_logits_observer([this](int32_t item, int32_t position, std::span<const float> logits) {
      Sequence& s = sequences_[static_cast<size_t>(plan_.items[static_cast<size_t>(item)].slot)];
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

  // Starts `sequence` on the first `blocks` full blocks of `from` (already computed, or by an earlier item of the same
  // step).
  void ShareBlocks(int32_t sequence, int32_t from, int32_t blocks) {
    Sequence& s = at(sequence);
    s.table.assign(at(from).table.begin(), at(from).table.begin() + blocks);
    s.computed = blocks * block_size_;
    shared_[sequence] = blocks;
  }
  // Drops all KV; the sequence computes everything again.
  void Preempt(int32_t sequence) {
    Sequence& s = at(sequence);
    for (size_t b = static_cast<size_t>(shared_[sequence]); b < s.table.size(); ++b) free_.push_back(s.table[b]);
    shared_[sequence] = 0;
    s.table.clear();
    s.computed = 0;
    s.announced = false;
  }

  // One step. Logits of every row with all_rows, else only of the last known token (which is sampled).
  StepResult Step(const std::vector<Take>& takes, bool all_rows = false) {
    plan_.Clear();
    plan_.step = step_++;
    for (const Take& take : takes) AddItem(take, all_rows);
    StepResult result;
    run_(plan_, &result);
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
    return result;
  }

  // The whole prompt, then one token at a time, until there are `tokens` output tokens.
  void Generate(int32_t sequence, int32_t tokens) {
    while (static_cast<int32_t>(at(sequence).output().size()) < tokens && at(sequence).status == ItemStatus::kOk) {
      const StepResult result = Step({{sequence, at(sequence).pending()}});
      if (!result.status.ok()) return;
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
    while (static_cast<int32_t>(s.table.size()) * block_size_ < end + drafts) {
      s.table.push_back(free_.back());
      free_.pop_back();
    }
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

  RunStep run_;
  int32_t block_size_;
  StepPlan plan_;
  StepId step_ = 0;
  std::vector<BlockId> free_;
  std::vector<Sequence> sequences_;
  std::map<int32_t, int32_t> shared_;
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

}  // namespace tactus::test
