// Forced tokens: the only tokens that a grammar allows next (base/token_grammar.h). They are sure to follow, so a step
// computes them as a chunk instead of one by one. Keeps a grammar state per sequence whose request has a grammar,
// separate from the executor's.
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
  // Cuts the guesses of other sources at the first token that the grammar, if any, does not allow.
  void Cut(DraftTask* task);

 private:
  struct Sequence {
    std::shared_ptr<const TokenGrammar> grammar;  // kept for `state`, which may refer to it
    std::unique_ptr<GrammarState> state;          // null: no grammar, or the output left it
    size_t seen = 0;                              // tokens of the output that it has accepted
  };
  std::vector<Sequence> sequences_;  // by slot
};

}  // namespace tactus::core
