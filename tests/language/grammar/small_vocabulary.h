// A readable vocabulary: every byte is the token of its number, then some words, then special tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "language/grammar/grammar_engine.h"

namespace tactus::language {

inline constexpr TokenId kEnd = 300, kOtherEnd = 301, kCall = 302;
inline constexpr int64_t kSmallSize = 310;  // padded: the last ids have no bytes

inline const std::vector<std::string>& Words() {
  static const std::vector<std::string> kWords = {"{\"", "\": ", "\": \"", "\", \"", "\"}", "}",   "name", "na",
                                                  "age", "true", "false",  " the",   "cat", "yes", "no",   "12"};
  return kWords;
}

// The longest token from the left, as in a tokeniser.
inline std::vector<TokenId> EncodeSmall(std::string_view text) {
  std::vector<TokenId> tokens;
  while (!text.empty()) {
    TokenId best = static_cast<unsigned char>(text[0]);
    size_t length = 1;
    for (size_t i = 0; i < Words().size(); ++i) {
      if (Words()[i].size() > length && text.starts_with(Words()[i])) {
        best = static_cast<TokenId>(256 + i);
        length = Words()[i].size();
      }
    }
    tokens.push_back(best);
    text.remove_prefix(length);
  }
  return tokens;
}

inline Vocabulary SmallVocabulary() {
  Vocabulary v;
  v.size = kSmallSize;
  v.tokens.resize(303);
  v.special.resize(303, false);
  for (int byte = 0; byte < 256; ++byte) v.tokens[static_cast<size_t>(byte)] = std::string(1, static_cast<char>(byte));
  for (size_t i = 0; i < Words().size(); ++i) v.tokens[256 + i] = Words()[i];
  v.tokens[kEnd] = "<end>";
  v.tokens[kOtherEnd] = "<eot>";
  v.tokens[kCall] = "<call>";
  v.special[kEnd] = v.special[kCall] = true;  // not kOtherEnd: an end token is special in any case
  v.end_ids = {kEnd, kOtherEnd};
  v.encode = EncodeSmall;
  return v;
}

}  // namespace tactus::language
