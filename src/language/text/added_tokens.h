// Finds added tokens in text like Hugging Face's tokenizers: the leftmost of the longest matches, then the matched
// token's rules (single_word, lstrip, rstrip). Immutable once made: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "language/text/byte_trie.h"
#include "language/text/tokenizer.h"

namespace tactus::language {

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  // Each token with its pattern: its content, normalized for tokens with `normalized`. Empty patterns never match.
  explicit AddedTokenMatcher(const std::vector<std::pair<std::string, TokenizerSpec::Added>>& tokens);

  struct Fragment {
    std::string_view text;
    size_t offset;  // of `text` in the split text
    TokenId id;     // -1: text between added tokens
  };
  // `text` is valid UTF-8. With with_special false a special token's text stays text.
  std::vector<Fragment> Split(std::string_view text, bool with_special) const;

 private:
  struct Rule {
    TokenId id;
    bool special, lstrip, rstrip, single_word;
  };
  // The longest pattern that starts at `at`: its place in tokens_ and its size in bytes; -1: none.
  int32_t MatchAt(std::string_view text, size_t at, size_t* size) const;
  std::vector<Rule> tokens_;
  ByteTrie patterns_;
};

}  // namespace tactus::language
