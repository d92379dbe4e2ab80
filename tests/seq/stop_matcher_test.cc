#include "seq/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tactus {
namespace {

TEST(StopMatcher, FindsAStringSplitOverTokens) {
  const std::vector<std::string> stops = {"</end>"};
  StopMatcher m(&stops);
  EXPECT_EQ(m.Append("hello <"), -1);
  EXPECT_EQ(m.Append("/e"), -1);
  EXPECT_EQ(m.Append("nd"), -1);
  EXPECT_EQ(m.Append("> more"), 0);
}

TEST(StopMatcher, TheOneThatEndsFirstWins) {
  const std::vector<std::string> stops = {"abcd", "bc", "abc"};
  StopMatcher m(&stops);
  EXPECT_EQ(m.Append("a"), -1);
  EXPECT_EQ(m.Append("bcd"), 2);   // "abc" and "bc" end at the same byte; "abc" starts earlier
}

TEST(StopMatcher, BytesFromBeforeDoNotMatchTwice) {
  const std::vector<std::string> stops = {"aa"};
  StopMatcher m(&stops);
  EXPECT_EQ(m.Append("xa"), -1);
  EXPECT_EQ(m.Append("b"), -1);
  EXPECT_EQ(m.Append("a"), -1);
  EXPECT_EQ(m.Append("a"), 0);
}

// However the bytes are cut into tokens, the first match is that of the whole text.
TEST(StopMatcher, TheCutDoesNotMatter) {
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
    ASSERT_EQ(found, 1) << cuts;   // "bb" ends at byte 3, before anything else
    ASSERT_GE(fed, 3u);
  }
}

TEST(StopMatcher, OneByteStops) {
  const std::vector<std::string> stops = {"\n"};
  StopMatcher m(&stops);
  EXPECT_EQ(m.Append("no"), -1);
  EXPECT_EQ(m.Append("yes\n"), 0);
}

}  // namespace
}  // namespace tactus
