// The draft source of an engine: forced tokens first, then the guesses of `guesses` that the grammar allows.
#pragma once

#include <memory>

#include "core/draft/forced_tokens.h"

namespace tactus::core {

class DraftSources final : public DraftSource {
 public:
  // `guesses` may be null.
  DraftSources(int32_t slot_capacity, std::unique_ptr<DraftSource> guesses)
      : forced_(slot_capacity), guesses_(std::move(guesses)) {}

  void Begin(SlotId slot, const Request& request, std::span<const TokenId> output) override {
    forced_.Begin(slot, request, output);
    if (guesses_ != nullptr) guesses_->Begin(slot, request, output);
  }
  void End(SlotId slot) override {
    forced_.End(slot);
    if (guesses_ != nullptr) guesses_->End(slot);
  }
  void Propose(std::span<DraftTask> tasks) override {
    forced_.Propose(tasks);
    if (guesses_ == nullptr) return;
    guesses_->Propose(tasks);
    for (DraftTask& task : tasks) forced_.Cut(&task);
  }

 private:
  ForcedTokens forced_;
  const std::unique_ptr<DraftSource> guesses_;
};

}  // namespace tactus::core
