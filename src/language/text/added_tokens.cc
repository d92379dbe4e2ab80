#include "language/text/added_tokens.h"

#include <algorithm>

#include "language/text/unicode.h"

namespace tactus::language {

void AddedTokenMatcher::Add(std::string_view pattern, const TokenizerSpec::Added& token) {
  if (pattern.empty()) return;
  const auto new_node = [this] {
    token_of_node_.push_back(-1);
    return static_cast<int32_t>(token_of_node_.size() - 1);
  };
  int32_t node = -1;
  for (const char c : pattern) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t* next =
        node < 0 ? &root_[byte] : &edges_.try_emplace(static_cast<uint64_t>(node) << 8 | byte, -1).first->second;
    if (*next < 0) *next = new_node();
    node = *next;
  }
  // Among tokens with equal text the first stays.
  int32_t& slot = token_of_node_[static_cast<size_t>(node)];
  if (slot >= 0) return;
  slot = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.special, token.lstrip, token.rstrip, token.single_word});
}

int32_t AddedTokenMatcher::MatchAt(std::string_view text, size_t at, size_t* size) const {
  int32_t node = root_[static_cast<unsigned char>(text[at])];
  int32_t found = -1;
  for (size_t i = at; node >= 0;) {
    ++i;
    if (token_of_node_[static_cast<size_t>(node)] >= 0)
      found = token_of_node_[static_cast<size_t>(node)], *size = i - at;
    if (i == text.size()) break;
    const auto edge = edges_.find(static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(text[i]));
    node = edge == edges_.end() ? -1 : edge->second;
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
    const int32_t found = MatchAt(text, at, &size);
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
