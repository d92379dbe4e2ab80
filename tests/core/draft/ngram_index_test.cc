// Compares the index with a search of the whole text.
#include "core/draft/ngram_index.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace tactus::core {
namespace {

struct Found {
  int32_t length = 0, next = 0;
};

// Length of the common suffix of the text before `next` and the whole text, at most kLongest.
int32_t LengthAt(const std::vector<TokenId>& text, size_t next, size_t oldest) {
  int32_t length = 0;
  while (length < NgramIndex::kLongest && next > oldest + static_cast<size_t>(length) &&
         text[next - 1 - static_cast<size_t>(length)] == text[text.size() - 1 - static_cast<size_t>(length)]) {
    ++length;
  }
  return length;
}

// The longest of the last `candidates` earlier occurrences of the last kGram tokens.
Found Search(const std::vector<TokenId>& text, int32_t candidates, size_t oldest) {
  Found best;
  for (size_t next = text.size() - 1; next >= oldest + NgramIndex::kGram && candidates > 0; --next) {
    const int32_t length = LengthAt(text, next, oldest);
    if (length < NgramIndex::kGram) continue;
    --candidates;
    if (length > best.length) best = {length, static_cast<int32_t>(next)};
  }
  return best;
}

// Text that repeats itself: mostly a random token, sometimes a copy of an earlier piece.
void Extend(Rng* rng, int64_t vocab, std::vector<TokenId>* text) {
  if (!text->empty() && rng->Uniform() < 0.1) {
    const auto from = static_cast<size_t>(rng->UniformInt(0, static_cast<int64_t>(text->size()) - 1));
    for (int64_t i = rng->UniformInt(1, 60); i > 0; --i)
      text->push_back((*text)[from + text->size() % (text->size() - from)]);
  } else {
    text->push_back(static_cast<TokenId>(rng->UniformInt(0, vocab - 1)));
  }
}

TEST(NgramIndex, MatchesSearchOfWholeText) {
  int64_t found = 0, none = 0, longest = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const int64_t vocab = seed % 2 == 0 ? 40 : 400;
    std::vector<TokenId> text, indexed;
    NgramIndex index;
    index.Begin(700);
    while (text.size() < 600) Extend(&rng, vocab, &text);
    text.resize(600);
    for (const TokenId token : text) {
      index.Append(token);
      indexed.push_back(token);
      if (indexed.size() < NgramIndex::kGram) continue;
      const Found near = Search(indexed, NgramIndex::kCandidates, 0), any = Search(indexed, 1 << 20, 0);
      // The match is among the candidates, or extends the match before.
      ASSERT_GE(index.match_length(), near.length) << "after " << indexed.size() << " tokens";
      ASSERT_LE(index.match_length(), any.length) << "after " << indexed.size() << " tokens";
      if (index.match_length() == 0) {
        ++none;
        continue;
      }
      ++found;
      longest += index.match_length() == NgramIndex::kLongest;
      std::vector<TokenId> guesses;
      index.Continuation(8, &guesses);
      ASSERT_EQ(guesses.size(), 8u);
      ASSERT_EQ(guesses[0], index.Next());
      // The continuation does follow an earlier occurrence of the matched text.
      bool stands_there = false;
      for (size_t next = NgramIndex::kGram; next < indexed.size() && !stands_there; ++next) {
        if (LengthAt(indexed, next, 0) < index.match_length()) continue;
        const size_t period = indexed.size() - next;
        stands_there = true;
        for (size_t i = 0; i < guesses.size(); ++i) stands_there &= guesses[i] == indexed[next + i % period];
      }
      ASSERT_TRUE(stands_there) << "after " << indexed.size() << " tokens";
    }
  }
  EXPECT_GT(found, 5000);
  EXPECT_GT(none, 1000);
  EXPECT_GT(longest, 500);
}

// Inserted tokens are found like appended ones. Matches are the same from the next token on, except that none extends
// an earlier match.
TEST(NgramIndex, InsertedTokensAreFound) {
  int64_t found = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<TokenId> text;
    NgramIndex index;
    index.Begin(700);
    while (text.size() < 300) Extend(&rng, 40, &text);
    for (const TokenId token : text) index.Insert(token);
    EXPECT_EQ(index.match_length(), 0);
    std::vector<TokenId> more = text;
    while (more.size() < 600) Extend(&rng, 40, &more);
    for (size_t i = text.size(); i < 600; ++i) {
      index.Append(more[i]);
      text.push_back(more[i]);
      ASSERT_GE(index.match_length(), Search(text, NgramIndex::kCandidates, 0).length) << "after " << i << " tokens";
      ASSERT_LE(index.match_length(), Search(text, 1 << 20, 0).length) << "after " << i << " tokens";
      found += index.match_length() > 0;
    }
  }
  EXPECT_GT(found, 2500);
}

TEST(NgramIndex, LatestOfEqualMatchesCounts) {
  NgramIndex index;
  index.Begin(64);
  for (const TokenId t : {1, 2, 7, 5, 1, 2, 8, 6, 1, 2}) index.Append(t);
  EXPECT_EQ(index.match_length(), 2);
  EXPECT_EQ(index.Next(), 8);
}

TEST(NgramIndex, ContinuationIsCyclicAtEndOfText) {
  NgramIndex index;
  index.Begin(64);
  for (const TokenId t : {1, 2, 3, 1, 2, 3, 1, 2}) index.Append(t);
  std::vector<TokenId> guesses;
  index.Continuation(7, &guesses);
  EXPECT_EQ(guesses, (std::vector<TokenId>{3, 1, 2, 3, 1, 2, 3}));
}

// Text before the window is not found.
TEST(NgramIndex, FindsNothingBeforeTheWindow) {
  constexpr int32_t kTokens = 3 * NgramIndex::kWindow;
  NgramIndex index;
  index.Begin(kTokens);
  index.Append(1);
  index.Append(2);
  for (int32_t i = 2; i < kTokens; ++i) index.Append(100 + i);  // all tokens differ
  EXPECT_EQ(index.match_length(), 0);
  index.Append(1);
  index.Append(2);
  EXPECT_EQ(index.match_length(), 0) << "found text before the window";
  for (const int32_t back : {1000, 999, 998}) index.Append(100 + kTokens - back);
  EXPECT_EQ(index.match_length(), 3) << "text within the window is found";
}

// Begin for a sequence of another length clears the index.
TEST(NgramIndex, BeginClearsTheIndex) {
  NgramIndex index;
  index.Begin(1000);
  for (int i = 0; i < 500; ++i) index.Append(i % 3);
  index.Begin(16);
  for (const TokenId t : {0, 1, 2}) index.Append(t);
  EXPECT_EQ(index.match_length(), 0);
}

}  // namespace
}  // namespace tactus::core
