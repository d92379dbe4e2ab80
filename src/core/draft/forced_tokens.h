// Tokens about which a grammar leaves no choice (base/token_grammar.h): sure to follow, so that a step computes them as
// a chunk instead of one after the other. For the sequences of requests that have a grammar; keeps a state of its own
// of each, beside the executor's.
#pragma once

#include <memory>
#include <vector>

#include "base/token_grammar.h"
#include "core/interfaces/draft_source.h"

namespace tactus::core {

class ForcedTokens final : public DraftSource {
 public:
  explicit ForcedTokens(int32_t slot_capacity) : sequences_(static_cast<size_t>(slot_capacity)) {}

  void Begin(SlotId slot, const Request& request, std::span<const TokenId> output) override;
  void End(SlotId slot) override;
  void Propose(std::span<DraftTask> tasks) override;
  // Cuts guesses that others made to those that the grammar, if there is one, would allow.
  void Cut(DraftTask* task);

 private:
  struct Sequence {
    std::shared_ptr<const TokenGrammar> grammar;  // of the state, which may refer to it
    std::unique_ptr<GrammarState> state;          // null: no grammar, or it follows the text no more
    size_t seen = 0;                              // tokens of the output that it has accepted
  };
  std::vector<Sequence> sequences_;  // by slot
};

}  // namespace tactus::core
