#include "language/grammar/rule_cache.h"

#include <gtest/gtest.h>

#include <string>

namespace tactus::language {
namespace {

class NoGrammar final : public TokenGrammar {
 public:
  std::unique_ptr<GrammarState> Start() const override { return nullptr; }
  int64_t vocab_size() const override { return 0; }
};

OutputRule Rule(std::string text) {
  return {OutputRule::Kind::kRegex, std::move(text)};
}

TEST(RuleCache, TheLeastRecentlyUsedRuleIsEvictedFirst) {
  RuleCache cache(2, 1000);
  const auto a = std::make_shared<NoGrammar>(), b = std::make_shared<NoGrammar>(), c = std::make_shared<NoGrammar>();
  EXPECT_EQ(cache.Find(Rule("a")), nullptr);
  cache.Keep(Rule("a"), a, 1);
  cache.Keep(Rule("b"), b, 1);
  EXPECT_EQ(cache.Find(Rule("a")), a);
  EXPECT_EQ(cache.Find({OutputRule::Kind::kLark, "a"}), nullptr);
  cache.Keep(Rule("c"), c, 1);
  EXPECT_EQ(cache.Find(Rule("b")), nullptr);
  EXPECT_EQ(cache.Find(Rule("a")), a);
  EXPECT_EQ(cache.Find(Rule("c")), c);
  cache.Keep(Rule("c"), b, 1);
  EXPECT_EQ(cache.Find(Rule("c")), c);  // the first one stays
}

TEST(RuleCache, BytesAreBounded) {
  RuleCache cache(100, 10);
  const auto grammar = std::make_shared<NoGrammar>();
  cache.Keep(Rule("a"), grammar, 6);
  cache.Keep(Rule("b"), grammar, 4);
  EXPECT_NE(cache.Find(Rule("a")), nullptr);
  cache.Keep(Rule("c"), grammar, 1);
  EXPECT_EQ(cache.Find(Rule("b")), nullptr);
  EXPECT_NE(cache.Find(Rule("a")), nullptr);
  cache.Keep(Rule("d"), grammar, 11);  // too large alone; evicts nothing
  EXPECT_EQ(cache.Find(Rule("d")), nullptr);
  EXPECT_NE(cache.Find(Rule("a")), nullptr);
  cache.Keep(Rule("e"), grammar, 1);
  EXPECT_NE(cache.Find(Rule("e")), nullptr);
}

TEST(RuleCache, ARefusalIsReturnedALimitedNumberOfTimes) {
  RuleCache cache(2, 1000);
  EXPECT_FALSE(cache.FindRefused(Rule("a")));
  cache.KeepRefused(Rule("a"), InvalidArgument("no"));
  EXPECT_FALSE(cache.FindRefused({OutputRule::Kind::kLark, "a"}));
  for (int i = 0; i < RuleCache::kMostAnswers; ++i) {
    const auto why = cache.FindRefused(Rule("a"));
    ASSERT_TRUE(why) << i;
    EXPECT_EQ(why->message(), "no");
  }
  EXPECT_FALSE(cache.FindRefused(Rule("a"))) << "it must be tried again";
}

TEST(RuleCache, RefusalsAreKeptWithinLimits) {
  RuleCache cache(2, 1000);
  for (size_t i = 0; i <= RuleCache::kMostRefused; ++i)
    cache.KeepRefused(Rule(std::to_string(i)), InvalidArgument("no"));
  EXPECT_FALSE(cache.FindRefused(Rule("0")));
  EXPECT_TRUE(cache.FindRefused(Rule("1")));
  for (const char c : {'x', 'y', 'z'})
    cache.KeepRefused(Rule(std::string(RuleCache::kMostRefusedBytes / 2, c)), InvalidArgument("no"));
  EXPECT_FALSE(cache.FindRefused(Rule("1")));
  EXPECT_FALSE(cache.FindRefused(Rule(std::string(RuleCache::kMostRefusedBytes / 2, 'x'))));
  EXPECT_TRUE(cache.FindRefused(Rule(std::string(RuleCache::kMostRefusedBytes / 2, 'z'))));
}

}  // namespace
}  // namespace tactus::language
