// Guesses at what follows sequences, which an executor verifies (base/step.h, StepItem). What is guessed changes how
// many tokens a step yields, never which. The loop asks after every pass that brought tokens, for all sequences at
// once; the scheduler decides how many of the guesses a step takes. A recording keeps what a source answered, so that
// it need not answer alike when the run is played again. Thread rule: engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "tactus/request.h"

namespace tactus::core {

enum class DraftKind : uint8_t {
  kForced,  // a grammar leaves no choice
  kNgram,   // what followed when the text was the same before
  kModel,   // a smaller model
};
inline constexpr std::array<const char*, 3> kDraftKindNames = {"forced", "ngram", "model"};

// The chance that a guess is right if those before it are, in 255ths.
using DraftChance = uint8_t;
inline constexpr DraftChance kSureDraft = 255;

// A sequence that has new tokens and goes on, and what may follow it.
struct DraftTask {
  SlotId slot = kNoSlot;
  std::span<const TokenId> prompt, output;  // empty where tokens have no ids
  int32_t most =
      0;  // guesses that can be used; 0: none now, as its next token is under way or they would not be verified
  double least_chance = 0;  // a step like the last one would verify no guess that is less likely; above 1: none

  // The answer. Guesses imply `waits`.
  std::vector<TokenId>* tokens = nullptr;  // empty, with room for `most`
  DraftChance chance = 0;
  DraftKind kind = DraftKind::kNgram;
  bool waits = false;  // its next token is worth waiting for, as guesses are likely to follow it: it should not chain
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // The sequence is about to get its first share of a step; `output`: what was generated elsewhere. May allocate.
  virtual void Begin(SlotId slot, const Request& request, std::span<const TokenId> output) = 0;
  // It is asked about no more. Once, after its Begin.
  virtual void End(SlotId slot) = 0;
  // At most one task of a sequence. Tasks that have an answer already (`waits`) keep it.
  virtual void Propose(std::span<DraftTask> tasks) = 0;
};

}  // namespace tactus::core
