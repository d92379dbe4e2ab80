// Finds added tokens in text like Hugging Face's tokenizers: the leftmost of the longest matches, then the matched
// token's rules (single_word, lstrip, rstrip). Immutable once filled: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "language/text/tokenizer.h"

namespace tactus::language {

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() { root_.fill(-1); }
  // `pattern`: the content, normalized for tokens with `normalized`. Empty patterns never match.
  void Add(std::string_view pattern, const TokenizerSpec::Added& token);
  bool empty() const { return tokens_.empty(); }

  struct Fragment {
    std::string_view text;
    size_t offset;  // of `text` in the split text
    TokenId id;     // -1: text between added tokens
  };
  // `text` is valid UTF-8. With with_special false a special token's text stays text.
  std::vector<Fragment> Split(std::string_view text, bool with_special) const;
  // The longest pattern that starts at `at`: its index in the order of Add and its size in bytes; -1: none.
  int32_t MatchAt(std::string_view text, size_t at, size_t* size) const;

 private:
  struct Rule {
    TokenId id;
    bool special, lstrip, rstrip, single_word;
  };
  std::vector<Rule> tokens_;
  std::array<int32_t, 256> root_;                // first byte -> node, so that ordinary text costs one look-up
  std::unordered_map<uint64_t, int32_t> edges_;  // node << 8 | byte -> node
  std::vector<int32_t> token_of_node_;
};

}  // namespace tactus::language
