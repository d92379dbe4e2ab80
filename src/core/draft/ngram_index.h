// The tokens of one sequence, and where its newest ones have stood before: the longest suffix that occurs earlier in
// the text, as LZ77 finds it (Ziv and Lempel, 1977). A hash of the last kGram tokens leads to their latest occurrence,
// and from each occurrence a link to the one before it.
//
// A token costs a bounded number of steps: at most kLinks links are followed, and kCandidates occurrences compared over
// at most kLongest tokens each. Memory is bounded: the last kWindow tokens count, 12 bytes each. Allocates in Begin
// alone. Thread rule: none of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

namespace tactus::core {

class NgramIndex {
 public:
  static constexpr int32_t kGram = 2;          // the shortest suffix that is looked for
  static constexpr int32_t kLongest = 32;      // beyond it a match is as good as any
  static constexpr int32_t kCandidates = 16;   // occurrences that are compared
  static constexpr int32_t kLinks = 64;        // that are followed, other grams of the same hash among them
  static constexpr int32_t kWindow = 1 << 15;  // tokens

  // Forgets everything; room for a sequence of at most `tokens` tokens, or the window's.
  void Begin(int64_t tokens);
  void Append(TokenId token);
  // As Append, but looks for no match, so match_length() is 0 until the next Append: for a text whose middle is not
  // asked about.
  void Insert(TokenId token);

  // The length of the longest suffix, of at least kGram and at most kLongest tokens, that occurs earlier in the text
  // among the candidates; of equal ones the latest. 0: there is none.
  int32_t match_length() const { return match_length_; }
  // The `count` tokens that followed there; where that is up to the end of the text, again from its beginning.
  // Precondition: match_length() > 0.
  void Continuation(int32_t count, std::vector<TokenId>* tokens) const;
  // The first of them.
  TokenId Next() const { return At(match_next_); }

 private:
  TokenId At(int32_t position) const { return tokens_[static_cast<size_t>(position) & mask_]; }
  size_t HashOfLast() const;
  int32_t LengthAt(int32_t next) const;
  void FindMatch();
  void Link();

  size_t mask_ = 0;
  std::vector<TokenId> tokens_;    // [window] by position
  std::vector<int32_t> previous_;  // [window] the position before at which the same gram ends; -1: none
  std::vector<int32_t> latest_;    // [window] by hash: the position at which such a gram ends; -1: none
  int32_t size_ = 0;               // tokens so far
  int32_t match_length_ = 0, match_next_ = 0;
};

}  // namespace tactus::core
