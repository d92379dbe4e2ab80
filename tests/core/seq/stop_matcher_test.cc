#include "core/seq/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace tactus::core {
namespace {

TEST(StopMatcher, FindsAStringSplitOverTokens) {
  const std::vector<std::string> stops = {"</end>"};
  StopMatcher m(&stops);
  EXPECT_EQ(m.Append("hello <"), -1);
  EXPECT_EQ(m.Append("/e"), -1);
  EXPECT_EQ(m.Append("nd"), -1);
  EXPECT_EQ(m.Append("> more"), 0);
}

TEST(StopMatcher, EarliestEndWins) {
  const std::vector<std::string> stops = {"abcd", "bc", "abc"};
  StopMatcher m(&stops);
  EXPECT_EQ(m.Append("a"), -1);
  EXPECT_EQ(m.Append("bcd"), 2);  // "abc" and "bc" end at the same byte; "abc" starts earlier
}

TEST(StopMatcher, BytesFromBeforeDoNotMatchTwice) {
  const std::vector<std::string> stops = {"aa"};
  StopMatcher m(&stops);
  EXPECT_EQ(m.Append("xa"), -1);
  EXPECT_EQ(m.Append("b"), -1);
  EXPECT_EQ(m.Append("a"), -1);
  EXPECT_EQ(m.Append("a"), 0);
}

// For every cut of the bytes into tokens, the first match is that of the whole text.
TEST(StopMatcher, MatchDoesNotDependOnTokenBoundaries) {
  const std::vector<std::string> stops = {"aba", "bb", "\xe2\x82\xac"};
  const std::string text = "abbaabcab\xe2\x82\xac";
  for (unsigned cuts = 0; cuts < (1u << (text.size() - 1)); ++cuts) {
    StopMatcher m(&stops);
    std::string token;
    size_t fed = 0;
    int found = -1;
    for (size_t i = 0; i < text.size() && found < 0; ++i) {
      token += text[i];
      if (((cuts >> i) & 1) == 0 && i + 1 < text.size()) continue;
      fed = i + 1;
      found = m.Append(token);
      token.clear();
    }
    ASSERT_EQ(found, 1) << cuts;  // "bb" ends at byte 3, before anything else
    ASSERT_GE(fed, 3u);
  }
}

// Compares with a search of the whole text, over random stops and cuts. Matching continues after a match, as for
// matches before min_tokens.
TEST(StopMatcher, MatchesSearchOfWholeText) {
  Rng rng(5);
  const auto random = [&rng](int64_t most) {
    std::string text;
    for (int64_t n = rng.UniformInt(1, most); n > 0; --n) text += rng.UniformInt(0, 2) == 0 ? 'b' : 'a';
    return text;
  };
  int matches = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (int64_t n = rng.UniformInt(1, 4); n > 0; --n) stops.push_back(random(6));
    if (round % 5 == 0) stops.push_back("");  // never matches
    StopMatcher matcher(&stops);
    std::string text;
    for (int token = 0; token < 12; ++token) {
      const size_t before = text.size();
      const std::string bytes = rng.UniformInt(0, 5) == 0 ? "" : random(4);
      text += bytes;
      int expected = -1;
      size_t best_end = 0, best_begin = 0;
      for (size_t i = 0; i < stops.size(); ++i) {
        for (size_t at = 0; !stops[i].empty() && at + stops[i].size() <= text.size(); ++at) {
          const size_t end = at + stops[i].size();
          if (end <= before || text.compare(at, stops[i].size(), stops[i]) != 0) continue;
          if (expected >= 0 && (end > best_end || (end == best_end && at >= best_begin))) continue;
          expected = static_cast<int>(i), best_end = end, best_begin = at;
        }
      }
      ASSERT_EQ(matcher.Append(bytes), expected) << "round " << round << ": '" << text << "' after " << before;
      matches += expected >= 0;
    }
  }
  EXPECT_GT(matches, 1000);
}

TEST(StopMatcher, FindsOneByteStops) {
  const std::vector<std::string> stops = {"\n"};
  StopMatcher m(&stops);
  EXPECT_EQ(m.Append("no"), -1);
  EXPECT_EQ(m.Append("yes\n"), 0);
}

}  // namespace
}  // namespace tactus::core
