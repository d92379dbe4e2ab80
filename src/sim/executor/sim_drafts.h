// Drafts of a simulation, which has no tokens: the largest allowed number, with a given acceptance probability. The
// executor decides which are accepted (sim/executor/sim_executor.h). Thread rule: engine thread only.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/interfaces/draft_source.h"

namespace tactus::sim {

class SimDrafts final : public core::DraftSource {
 public:
  SimDrafts(core::DraftKind kind, int32_t most, double acceptance)
      : kind_(kind),
        most_(most),
        // Below 1: only drafts of a grammar are certain.
        chance_(static_cast<core::DraftChance>(
            std::min<long>(core::kSureDraft - 1, std::lround(acceptance * core::kSureDraft)))) {}
  void Begin(SlotId, const Request&, std::span<const TokenId>) override {}
  void End(SlotId) override {}
  void Propose(std::span<core::DraftTask> tasks) override {
    for (core::DraftTask& task : tasks) {
      if (static_cast<double>(chance_) / core::kSureDraft < task.least_chance) continue;
      task.tokens->assign(static_cast<size_t>(std::min(task.most, most_)), 0);
      task.waits = true;
      task.kind = kind_;
      task.chance = chance_;
    }
  }

 private:
  const core::DraftKind kind_;
  const int32_t most_;
  const core::DraftChance chance_;
};

}  // namespace tactus::sim
