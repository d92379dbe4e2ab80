// Returns the guesses of a recording, so that a replay makes the same decisions without the draft source. Thread rule:
// engine thread only.
#pragma once

#include <deque>
#include <vector>

#include "core/interfaces/draft_source.h"

namespace tactus::core {

struct RecordedDrafts {
  SlotId slot = kNoSlot;
  int32_t tokens = 0;
  DraftChance chance = 0;
  DraftKind kind = DraftKind::kForced;
};

// The guesses have the recorded number and no token ids.
class RecordedDraftSource final : public DraftSource {
 public:
  // `answers` (may be null): receives the guesses for every task that can use some, in order; 0 tokens if there are
  // none.
  explicit RecordedDraftSource(std::vector<RecordedDrafts>* answers = nullptr) : answers_(answers) {}
  void Expect(const std::vector<RecordedDrafts>& drafts) { next_.insert(next_.end(), drafts.begin(), drafts.end()); }
  bool drained() const { return next_.empty(); }
  void Begin(SlotId, const Request&, std::span<const TokenId>) override {}
  void End(SlotId) override {}
  void Propose(std::span<DraftTask> tasks) override {
    for (DraftTask& task : tasks) {
      Answer(&task);
      if (answers_ != nullptr && task.most > 0)
        answers_->push_back({task.slot, static_cast<int32_t>(task.tokens->size()), task.chance, task.kind});
    }
  }

 private:
  void Answer(DraftTask* task) {
    if (next_.empty() || next_.front().slot != task->slot || next_.front().tokens > task->most) return;
    const RecordedDrafts& recorded = next_.front();
    task->tokens->assign(static_cast<size_t>(recorded.tokens), 0);
    task->chance = recorded.chance;
    task->kind = recorded.kind;
    task->waits = true;
    next_.pop_front();
  }

  std::vector<RecordedDrafts>* const answers_;
  std::deque<RecordedDrafts> next_;
};

}  // namespace tactus::core
