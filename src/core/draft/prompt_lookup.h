// Guesses by looking back (prompt lookup; Saxena 2023, "Prompt Lookup Decoding"): where the last tokens have stood in
// the text before, prompt or answer, what followed there may follow again.
//
// How likely that is it learns while it looks: each token that comes is compared with what the longest match before it
// had foretold, whether or not that was verified, by the length of the match. So a text that does not repeat itself
// costs no verification, and one that begins to is noticed. Of every length there are two estimates, of the sequence
// and of all sequences so far; the second is what the first begins with.
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
  static constexpr size_t kLengths = 6;  // classes of lengths of a match
  // How often what a match foretold came, later matches counting more.
  struct Estimate {
    double right = 0, all = 0;
    void Add(bool hit, double keep) {
      right = right * keep + (hit ? 1 : 0);
      all = all * keep + 1;
    }
  };
  struct Sequence {
    NgramIndex index;
    int32_t seen = 0;  // tokens of prompt and output that are in it, or lie before what it can hold
    std::array<Estimate, kLengths> estimates;
  };

  static size_t ClassOf(int32_t length);
  double ChanceOf(const Sequence& sequence) const;
  void CatchUp(const DraftTask& task, Sequence* sequence);

  const int32_t most_;
  const int64_t max_model_len_;
  std::array<Estimate, kLengths> overall_;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // by slot; null: none
  std::vector<std::unique_ptr<Sequence>> unused_;     // keep their memory for the next
};

}  // namespace tactus::core
