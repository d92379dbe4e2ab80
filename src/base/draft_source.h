// Guesses at what follows a sequence, which an executor verifies in one step (base/step.h, StepItem). What is guessed
// changes how many tokens a step yields, never which. Thread rule: engine thread only.
#pragma once

#include <span>
#include <vector>

#include "base/units.h"
#include "tactus/request.h"

namespace tactus {

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Puts 1 to `most` token ids that may follow prompt + output into *drafts (empty, with room for `most`), or none.
  // Both spans are empty where tokens have no ids. Called when a sequence has its newest token and goes on.
  virtual void Propose(SlotId slot, std::span<const TokenId> prompt, std::span<const TokenId> output, int32_t most,
                       std::vector<TokenId>* drafts) = 0;
};

}  // namespace tactus
