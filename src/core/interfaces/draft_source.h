// Draft sources guess the tokens that follow a sequence; an executor verifies the guesses (base/step.h, StepItem).
// Guesses change how many tokens a step yields, never which. After every pass with new tokens the loop calls Propose
// once, for all sequences; the scheduler decides how many guesses a step verifies. A recording stores the guesses, so
// that a replay does not need the source. Thread rule: engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "tactus/request.h"

namespace tactus::core {

enum class DraftKind : uint8_t {
  kForced,  // the only token that the grammar allows
  kNgram,   // the tokens after an earlier occurrence of the same text
  kModel,   // a smaller model
};
inline constexpr std::array<const char*, 3> kDraftKindNames = {"forced", "ngram", "model"};

// Probability that a guess is right, given that those before it are, in units of 1/255.
using DraftChance = uint8_t;
inline constexpr DraftChance kSureDraft = 255;

// A live sequence with new tokens, and the guesses for it.
struct DraftTask {
  SlotId slot = kNoSlot;
  std::span<const TokenId> prompt, output;  // empty where tokens have no ids
  // Most guesses that can be used. 0: none now, because the next token is in flight or no guess would be verified.
  int32_t most = 0;
  // A step like the last one verifies no guess with a smaller chance; above 1: it verifies none.
  double least_chance = 0;

  // Set by Propose. Guesses imply `waits`.
  std::vector<TokenId>* tokens = nullptr;  // empty, with room for `most`
  DraftChance chance = 0;
  DraftKind kind = DraftKind::kNgram;
  bool waits = false;  // guesses are likely after its next token: do not chain a step before that token's result
};

class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Called before the sequence's first item in a step. `output`: tokens generated at another replica. May allocate.
  virtual void Begin(SlotId slot, const Request& request, std::span<const TokenId> output) = 0;
  // The sequence has no more tasks. Called once, after its Begin.
  virtual void End(SlotId slot) = 0;
  // At most one task per sequence. Tasks with `waits` set already have guesses and are left alone.
  virtual void Propose(std::span<DraftTask> tasks) = 0;
};

}  // namespace tactus::core
