#include "core/draft/forced_tokens.h"

#include <algorithm>

namespace tactus::core {

void ForcedTokens::Begin(SlotId slot, const Request& request, std::span<const TokenId>) {
  Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  sequence.state.reset();  // before the grammar, to which it may refer
  sequence.grammar = request.grammar;
  sequence.seen = 0;
  if (sequence.grammar != nullptr) sequence.state = sequence.grammar->Start();
}

void ForcedTokens::End(SlotId slot) {
  Sequence& sequence = sequences_[static_cast<size_t>(slot)];
  sequence.state.reset();  // before the grammar, to which it may refer
  sequence = {};
}

void ForcedTokens::Propose(std::span<DraftTask> tasks) {
  for (DraftTask& task : tasks) {
    Sequence& sequence = sequences_[static_cast<size_t>(task.slot)];
    for (; sequence.state != nullptr && sequence.seen < task.output.size(); ++sequence.seen) {
      if (!sequence.state->Accept(task.output[sequence.seen])) sequence.state.reset();
    }
    if (sequence.state == nullptr || task.most == 0) continue;
    sequence.state->Forced(task.most, task.tokens);
    if (task.tokens->empty()) continue;
    task.waits = true;
    task.kind = DraftKind::kForced;
    task.chance = kSureDraft;
  }
}

void ForcedTokens::Cut(DraftTask* task) {
  GrammarState* const state = sequences_[static_cast<size_t>(task->slot)].state.get();
  if (state == nullptr || task->tokens->empty() || task->kind == DraftKind::kForced) return;
  task->tokens->resize(static_cast<size_t>(std::max(0, state->CountValid(*task->tokens))));
}

}  // namespace tactus::core
