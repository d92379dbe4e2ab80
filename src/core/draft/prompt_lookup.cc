#include "core/draft/prompt_lookup.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tactus::core {
namespace {

// The least chance of a guess for which a sequence waits.
constexpr double kLeastLookupChance = 0.25;
// Decay of an estimate per token; its memory is 1 / (1 - keep) tokens.
constexpr double kKeepOfSequence = 0.95, kKeepOverall = 0.999;
// Prior chance by class of length, and the weight of the prior in tokens.
constexpr double kPriorOfLength[] = {0.2, 0.35, 0.5, 0.65, 0.8, 0.9};
constexpr double kPriorGuesses = 20, kOverallTokens = 4;

}  // namespace

PromptLookup::PromptLookup(int32_t slot_capacity, int32_t most, int64_t max_model_len)
    : most_(most), max_model_len_(max_model_len), sequences_(static_cast<size_t>(slot_capacity)) {
  unused_.reserve(sequences_.size());
  for (size_t c = 0; c < kLengths; ++c) overall_[c] = {kPriorOfLength[c] * kPriorGuesses, kPriorGuesses};
}

PromptLookup::~PromptLookup() = default;

void PromptLookup::Begin(SlotId slot, const Request& request, std::span<const TokenId>) {
  std::unique_ptr<Sequence>& sequence = sequences_[static_cast<size_t>(slot)];
  TACTUS_CHECK(sequence == nullptr);
  if (unused_.empty()) {
    sequence = std::make_unique<Sequence>();
  } else {
    sequence = std::move(unused_.back());
    unused_.pop_back();
  }
  const auto prompt = static_cast<int64_t>(request.prompt->size());
  sequence->index.Begin(std::min(prompt + request.stop.max_tokens, max_model_len_));
  sequence->seen = 0;
  sequence->estimates = {};
}

void PromptLookup::End(SlotId slot) {
  std::unique_ptr<Sequence>& sequence = sequences_[static_cast<size_t>(slot)];
  TACTUS_CHECK(sequence != nullptr);
  unused_.push_back(std::move(sequence));
}

size_t PromptLookup::ClassOf(int32_t length) {
  return length <= 2 ? 0 : length == 3 ? 1 : length <= 5 ? 2 : length <= 8 ? 3 : length <= 16 ? 4 : 5;
}

double PromptLookup::ChanceOf(const Sequence& sequence) const {
  const size_t c = ClassOf(sequence.index.match_length());
  const Estimate& own = sequence.estimates[c];
  const Estimate& all = overall_[c];
  return (own.right + kOverallTokens * all.right / all.all) / (own.all + kOverallTokens);
}

void PromptLookup::CatchUp(const DraftTask& task, Sequence* sequence) {
  const auto prompt = static_cast<int32_t>(task.prompt.size());
  const auto end = prompt + static_cast<int32_t>(task.output.size());
  // A prompt enters in one call on the engine thread: only the tokens within the window, and without searches for a
  // match before its last token.
  if (sequence->seen == 0) sequence->seen = std::max(0, prompt - NgramIndex::kWindow);
  for (; sequence->seen < prompt - 1; ++sequence->seen) {
    sequence->index.Insert(task.prompt[static_cast<size_t>(sequence->seen)]);
  }
  for (; sequence->seen < end; ++sequence->seen) {
    const bool generated = sequence->seen >= prompt;
    const TokenId token = generated ? task.output[static_cast<size_t>(sequence->seen - prompt)]
                                    : task.prompt[static_cast<size_t>(sequence->seen)];
    if (generated && sequence->index.match_length() > 0) {
      const size_t c = ClassOf(sequence->index.match_length());
      const bool hit = sequence->index.Next() == token;
      sequence->estimates[c].Add(hit, kKeepOfSequence);
      overall_[c].Add(hit, kKeepOverall);
    }
    sequence->index.Append(token);
  }
}

void PromptLookup::Propose(std::span<DraftTask> tasks) {
  for (DraftTask& task : tasks) {
    Sequence& sequence = *sequences_[static_cast<size_t>(task.slot)];
    CatchUp(task, &sequence);
    if (task.waits || sequence.index.match_length() == 0) continue;
    const double chance = ChanceOf(sequence);
    if (chance < std::max(kLeastLookupChance, task.least_chance)) continue;
    task.waits = true;
    task.kind = DraftKind::kNgram;
    // Always less than kSureDraft.
    task.chance = static_cast<DraftChance>(std::min<int64_t>(kSureDraft - 1, std::llround(chance * kSureDraft)));
    sequence.index.Continuation(std::min(task.most, most_), task.tokens);
  }
}

}  // namespace tactus::core
