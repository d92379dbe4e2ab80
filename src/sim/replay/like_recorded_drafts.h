// Drafts of a simulation that reproduces a recorded run: with the recorded number, chance and acceptance. The k-th
// request for a draft gets the k-th recorded answer, starting over after the last. The executor decides which draft
// tokens are accepted (sim/executor/sim_executor.h). Thread rule: engine thread only.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/trace/recorded_drafts.h"
#include "tactus/engine.h"

namespace tactus::sim {

// The acceptance probability of a draft token, given that those before it are accepted, for which drafts of the
// recorded mean length have the recorded mean number of accepted tokens. 0 without drafts.
inline double AcceptanceOf(const DraftCounts& counts) {
  if (counts.drafts <= 0 || counts.draft_tokens <= 0 || counts.accepted_tokens <= 0) return 0;
  if (counts.accepted_tokens >= counts.draft_tokens) return 1;
  const double tokens = static_cast<double>(counts.draft_tokens) / static_cast<double>(counts.drafts);
  const double right = static_cast<double>(counts.accepted_tokens) / static_cast<double>(counts.drafts);
  double low = 0, high = 1;
  for (int i = 0; i < 50; ++i) {
    const double p = (low + high) / 2;
    (p * (1 - std::pow(p, tokens)) / (1 - p) < right ? low : high) = p;
  }
  return high;
}

class LikeRecordedDrafts final : public core::DraftSource {
 public:
  explicit LikeRecordedDrafts(const std::vector<core::RecordedDrafts>& answers) : answers_(answers) {}
  void Begin(SlotId, const Request&, std::span<const TokenId>) override {}
  void End(SlotId) override {}
  void Propose(std::span<core::DraftTask> tasks) override {
    for (core::DraftTask& task : tasks) {
      if (task.most <= 0 || answers_.empty()) continue;
      const core::RecordedDrafts& answer = answers_[next_++ % answers_.size()];
      if (answer.tokens == 0) continue;
      task.tokens->assign(static_cast<size_t>(std::min(answer.tokens, task.most)), 0);
      task.chance = answer.chance;
      task.kind = answer.kind;
      task.waits = true;
    }
  }

 private:
  const std::vector<core::RecordedDrafts>& answers_;
  size_t next_ = 0;
};

}  // namespace tactus::sim
