// Splits text into the pieces that byte-pair merges may not cross, by regexes applied in sequence, as the pre-tokenizer
// "Sequence" of Hugging Face's tokenizers does. PCRE2 runs them; where its classes differ from those of the reference's
// engine (white space, \w), the pattern is rewritten. Immutable after Compile: any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "language/text/tokenizer.h"

namespace tactus::language {

// The split patterns of known models.
extern const char kGpt2Pattern[];    // GPT-2, and after the digits SmolLM
extern const char kLlama3Pattern[];  // Llama 3
extern const char kQwen2Pattern[];   // Qwen2, 2.5, 3
extern const char kOneDigitPattern[];
extern const char kPunctuationPattern[];  // runs of punctuation, as Falcon and others split first

class Pretokenizer {
 public:
  // `behaviors`: one per pattern, or empty: all kIsolated. A pattern that PCRE2 or the rewriting does not support is
  // kUnimplemented with the pattern and the place.
  static Result<std::unique_ptr<Pretokenizer>> Compile(const std::vector<std::string>& patterns,
                                                       const std::vector<SplitBehavior>& behaviors);
  ~Pretokenizer();
  // Appends the non-empty pieces of `text` (valid UTF-8), in order, as views into it; when stopped, only the first
  // ones.
  void Split(std::string_view text, std::vector<std::string_view>* pieces, StopToken stop = {}) const;

 private:
  struct Rule;
  Pretokenizer();
  std::vector<Rule> rules_;
};

// Replaces the reference's classes by PCRE2's spelling; declared for its test.
Result<std::string> RewritePattern(std::string_view pattern);

}  // namespace tactus::language
