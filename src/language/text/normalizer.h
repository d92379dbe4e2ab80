// Runs the normalizers of a tokeniser. Immutable after Compile: any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "language/text/byte_trie.h"
#include "language/text/tokenizer_spec.h"
#include "tactus/status.h"

namespace tactus::language {

class Normalizer {
 public:
  // `spec` must outlive the result.
  static Result<std::unique_ptr<Normalizer>> Compile(const TokenizerSpec& spec);
  ~Normalizer();
  bool empty() const { return steps_.empty(); }
  // `text` is valid UTF-8, and so is the result. `at_start` becomes false where nothing of the result stems from the
  // text's first character: it then does not begin where the text did.
  std::string Apply(std::string_view text, bool* at_start) const;
  // At least 1 / shrinks_to() of a text's bytes remain, U+2581 counted as one; 0: no bound.
  size_t shrinks_to() const { return shrinks_to_; }
  bool collapses_spaces() const { return collapses_spaces_; }

 private:
  struct Step;
  Normalizer();
  std::vector<Step> steps_;
  size_t shrinks_to_ = 1;
  bool collapses_spaces_ = false;
};

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to);

}  // namespace tactus::language
