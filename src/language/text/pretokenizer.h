// Splits text into the pieces that a model encodes on their own. Immutable after Compile: any thread.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "language/text/tokenizer_spec.h"
#include "tactus/status.h"
#include "tactus/stop_token.h"

namespace tactus::language {

// The split patterns of known models.
extern const char kGpt2Pattern[];    // GPT-2, and after the digits SmolLM
extern const char kLlama3Pattern[];  // Llama 3
extern const char kQwen2Pattern[];   // Qwen2, 2.5, 3

class Pretokenizer {
 public:
  struct Piece {
    std::string_view text;
    bool at_start;  // where the whole text begins
  };
  // kUnimplemented: a pattern that Regex does not support.
  static Result<std::unique_ptr<Pretokenizer>> Compile(std::vector<PreTokenizerStep> steps);
  ~Pretokenizer();
  // Appends the non-empty pieces of `text` (valid UTF-8), in order; when stopped, only the first ones. They are views
  // into it or into `storage`.
  void Split(Piece text, std::vector<Piece>* pieces, std::deque<std::string>* storage, StopToken stop = {}) const;
  // The last step spells bytes in GPT-2's alphabet. It is left out: the pieces are bytes.
  bool bytes() const { return bytes_; }
  bool drops_text() const { return drops_text_; }

 private:
  struct Step;
  Pretokenizer();
  std::vector<Step> steps_;
  bool bytes_ = false, drops_text_ = false;
};

}  // namespace tactus::language
