// Prompt lookup (Saxena 2023, "Prompt Lookup Decoding"): where the last tokens occurred earlier in the prompt or
// output, the tokens that followed there may follow again.
//
// The chance of a guess is measured per length of match: each new token is compared with the token that the longest
// match before it predicted, verified or not. So a text that does not repeat itself costs no verification, and one that
// starts to repeat is noticed. Each length has two estimates, one of the sequence and one of all sequences so far; the
// second is the prior of the first.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "core/draft/ngram_index.h"
#include "core/interfaces/draft_source.h"

namespace tactus::core {

class PromptLookup final : public DraftSource {
 public:
  // `most`: guesses of one sequence. `max_model_len`: tokens of a sequence.
  PromptLookup(int32_t slot_capacity, int32_t most, int64_t max_model_len);
  ~PromptLookup() override;

  void Begin(SlotId slot, const Request& request, std::span<const TokenId> output) override;
  void End(SlotId slot) override;
  void Propose(std::span<DraftTask> tasks) override;

 private:
  static constexpr size_t kLengths = 6;  // classes of match lengths
  // Share of matches that predicted the next token, recent ones weighing more.
  struct Estimate {
    double right = 0, all = 0;
    void Add(bool hit, double keep) {
      right = right * keep + (hit ? 1 : 0);
      all = all * keep + 1;
    }
  };
  struct Sequence {
    NgramIndex index;
    int32_t seen = 0;  // leading tokens of prompt and output that are in the index or before its window
    std::array<Estimate, kLengths> estimates;
  };

  static size_t ClassOf(int32_t length);
  double ChanceOf(const Sequence& sequence) const;
  void CatchUp(const DraftTask& task, Sequence* sequence);

  const int32_t most_;
  const int64_t max_model_len_;
  std::array<Estimate, kLengths> overall_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // by slot; null: none
  std::vector<std::unique_ptr<Sequence>> unused_;     // free objects, kept for their memory
};

}  // namespace tactus::core
