// The tokens of one sequence, and the longest suffix that occurs earlier in the text, as LZ77 finds it (Ziv and Lempel,
// 1977). A hash of the last kGram tokens leads to their latest occurrence, and a link from each occurrence to the one
// before it.
//
// The time per token is bounded: at most kLinks links are followed, and kCandidates occurrences compared over at most
// kLongest tokens each. So is the memory: 12 bytes for each of the last kWindow tokens. Only Begin allocates. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

namespace tactus::core {

class NgramIndex {
 public:
  static constexpr int32_t kGram = 2;         // length of the shortest match
  static constexpr int32_t kLongest = 32;     // longer matches are not distinguished
  static constexpr int32_t kCandidates = 16;  // occurrences compared per token
  static constexpr int32_t kLinks = 64;  // links followed per token, including those of other grams with the same hash
  static constexpr int32_t kWindow = 1 << 15;  // tokens

  // Clears the index and makes room for a sequence of min(tokens, kWindow) tokens.
  void Begin(int64_t tokens);
  void Append(TokenId token);
  // As Append, but without the search for a match: match_length() is 0 until the next Append.
  void Insert(TokenId token);

  // The length of the longest suffix, of at least kGram and at most kLongest tokens, that occurs earlier in the text
  // among the candidates; 0: none. Among matches of equal length the latest counts.
  int32_t match_length() const { return match_length_; }
  // The `count` tokens after that occurrence, repeated cyclically where they reach the end of the text. Precondition:
  // match_length() > 0.
  void Continuation(int32_t count, std::vector<TokenId>* tokens) const;
  // The first token of the continuation.
  TokenId Next() const { return At(match_next_); }

 private:
  TokenId At(int32_t position) const { return tokens_[static_cast<size_t>(position) & mask_]; }
  size_t HashOfLast() const;
  int32_t LengthAt(int32_t next) const;
  void FindMatch();
  void Link();

  size_t mask_ = 0;
  std::vector<TokenId> tokens_;    // [window], by position
  std::vector<int32_t> previous_;  // [window] the previous end position of the same hash; -1: none
  std::vector<int32_t> latest_;    // [window] by hash: the latest end position of a gram; -1: none
  int32_t size_ = 0;               // tokens so far
  int32_t match_length_ = 0, match_next_ = 0;
};

}  // namespace tactus::core
