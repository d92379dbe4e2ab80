#include "core/draft/ngram_index.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"

namespace tactus::core {

void NgramIndex::Begin(int64_t tokens) {
  const auto window = std::bit_ceil(static_cast<size_t>(std::clamp<int64_t>(tokens, kGram, kWindow)));
  mask_ = window - 1;
  tokens_.resize(window);
  previous_.resize(window);
  latest_.assign(window, -1);
  size_ = match_length_ = match_next_ = 0;
}

size_t NgramIndex::HashOfLast() const {
  uint64_t hash = 0;
  for (int32_t i = 1; i <= kGram; ++i) hash = MixHash(hash, static_cast<uint64_t>(At(size_ - i)));
  return static_cast<size_t>(hash) & mask_;
}

// Length of the common suffix of the text before `next` and the whole text.
int32_t NgramIndex::LengthAt(int32_t next) const {
  const int32_t oldest = std::max(0, size_ - static_cast<int32_t>(mask_ + 1));
  const int32_t most = std::min(kLongest, next - oldest);
  int32_t length = 0;
  while (length < most && At(next - 1 - length) == At(size_ - 1 - length)) ++length;
  return length;
}

void NgramIndex::FindMatch() {
  match_length_ = 0;
  const int32_t oldest = std::max(0, size_ - static_cast<int32_t>(mask_ + 1));
  int32_t at = latest_[HashOfLast()];
  int32_t candidates = 0;
  for (int32_t link = 0; link < kLinks && candidates < kCandidates && at >= oldest && match_length_ < kLongest;
       ++link) {
    const int32_t length = LengthAt(at + 1);
    candidates += length >= kGram;
    if (length >= kGram && length > match_length_) {
      match_length_ = length;
      match_next_ = at + 1;
    }
    at = previous_[static_cast<size_t>(at) & mask_];
  }
}

void NgramIndex::Append(TokenId token) {
  const bool goes_on = match_length_ > 0 && Next() == token;
  tokens_[static_cast<size_t>(size_) & mask_] = token;
  ++size_;
  const int32_t next = match_next_ + 1;
  match_length_ = 0;
  if (size_ < kGram) return;
  // No search if the previous match was extended to the maximal length.
  const int32_t length = goes_on ? LengthAt(next) : 0;
  if (length < kLongest) FindMatch();
  if (length > match_length_) {
    match_length_ = length;
    match_next_ = next;
  }
  Link();
}

void NgramIndex::Insert(TokenId token) {
  tokens_[static_cast<size_t>(size_) & mask_] = token;
  ++size_;
  match_length_ = 0;
  if (size_ >= kGram) Link();
}

// Adds the last gram to its hash chain.
void NgramIndex::Link() {
  int32_t& latest = latest_[HashOfLast()];
  previous_[static_cast<size_t>(size_ - 1) & mask_] = latest;
  latest = size_ - 1;
}

void NgramIndex::Continuation(int32_t count, std::vector<TokenId>* tokens) const {
  const int32_t period = size_ - match_next_;
  for (int32_t i = 0; i < count; ++i) tokens->push_back(At(match_next_ + i % period));
}

}  // namespace tactus::core
