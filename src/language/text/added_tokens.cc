#include "language/text/added_tokens.h"

#include <algorithm>

#include "language/text/unicode.h"

namespace tactus::language {

AddedTokenMatcher::AddedTokenMatcher(const std::vector<std::pair<std::string, TokenizerSpec::Added>>& tokens) {
  std::vector<std::pair<std::string_view, int32_t>> patterns;
  // Among tokens with equal patterns the first one counts, and in a trie the last one.
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
    const TokenizerSpec::Added& added = token->second;
    patterns.emplace_back(token->first, static_cast<int32_t>(tokens_.size()));
    tokens_.push_back({added.id, added.special, added.lstrip, added.rstrip, added.single_word});
  }
  patterns_ = ByteTrie(std::move(patterns));
}

int32_t AddedTokenMatcher::MatchAt(std::string_view text, size_t at, size_t* size) const {
  int32_t node = ByteTrie::kRoot, found = -1;
  for (size_t i = at; i < text.size(); ++i) {
    node = patterns_.Next(node, text[i]);
    if (node == ByteTrie::kNone) break;
    if (patterns_.Value(node) >= 0) found = patterns_.Value(node), *size = i + 1 - at;
  }
  return found;
}

std::vector<AddedTokenMatcher::Fragment> AddedTokenMatcher::Split(std::string_view text, bool with_special) const {
  std::vector<Fragment> fragments;
  size_t done = 0;         // earlier text is in fragments
  size_t white_until = 0;  // white space reaches from the last token with rstrip to here
  const auto put = [&](size_t begin, size_t end, TokenId id) {
    fragments.push_back({text.substr(begin, end - begin), begin, id});
  };
  for (size_t at = 0, size = 0; !tokens_.empty() && at < text.size();) {
    const bool begins = patterns_.Next(ByteTrie::kRoot, text[at]) != ByteTrie::kNone;
    const int32_t found = begins ? MatchAt(text, at, &size) : -1;
    if (found < 0) {
      ++at;
      continue;
    }
    const Rule& token = tokens_[static_cast<size_t>(found)];
    size_t begin = at, end = at + size;
    at = end;  // also skipped where a rule below refuses the token, as in the reference
    if (token.special && !with_special) continue;
    if (token.single_word && (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) continue;
    if (token.lstrip && begin > done) begin -= TrailingWhiteSpace(text.substr(done, begin - done));
    if (token.rstrip) {
      // A token within white space consumed by an earlier token: its end is known.
      if (end >= white_until) white_until = end + LeadingWhiteSpace(text.substr(end));
      end = white_until;
    }
    if (begin > done) put(done, begin, -1);
    put(begin, std::max(begin, end), token.id);
    done = end;
  }
  if (done < text.size()) put(done, text.size(), -1);
  return fragments;
}

}  // namespace tactus::language
