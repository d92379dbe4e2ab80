// Guesses of a simulation, which has no tokens: as many as there may be, and how likely each is right is known. Which
// are right the executor says (sim/sim_executor.h). Thread rule: engine thread only.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/interfaces/draft_source.h"

namespace tactus {

class SimDrafts final : public DraftSource {
 public:
  SimDrafts(DraftKind kind, int32_t most, double acceptance)
      : kind_(kind),
        most_(most),
        // Less than sure: those of a grammar alone are.
        chance_(static_cast<DraftChance>(std::min<long>(kSureDraft - 1, std::lround(acceptance * kSureDraft)))) {}
  void Begin(SlotId, const Request&, std::span<const TokenId>) override {}
  void End(SlotId) override {}
  void Propose(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) {
      if (static_cast<double>(chance_) / kSureDraft < task.least_chance) continue;
      task.tokens->assign(static_cast<size_t>(std::min(task.most, most_)), 0);
      task.waits = true;
      task.kind = kind_;
      task.chance = chance_;
    }
  }

 private:
  const DraftKind kind_;
  const int32_t most_;
  const DraftChance chance_;
};

}  // namespace tactus
