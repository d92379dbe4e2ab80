// Rules that do not end, and the memory of those that do. Skipped where llguidance's library is not there
// (scripts/get_llguidance.sh).
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "grammar/grammar_engine.h"
#include "grammar/llguidance.h"
#include "grammar/needs_llguidance.h"
#include "grammar/small_vocabulary.h"
#include "time_limit.h"

namespace tactus::grammar {
namespace {

using Kind = OutputRule::Kind;

class HostileRulesTest : public testing::Test {
 protected:
  void SetUp() override { TACTUS_NEEDS_LLGUIDANCE(); }
};

// Four of them would have taken all places for good.
TEST_F(HostileRulesTest, RulesThatDoNotEndAreEndedAndOthersAreCompiled) {
  GrammarLimits limits;
  limits.compile_ms = 60'000;
  limits.trial_ms = 300;
  auto engine = GrammarEngine::Create(SmallVocabulary(), limits);
  ASSERT_TRUE(engine.ok());
  // Two definitions, so that no check before it sees them together.
  const auto endless = [](int i) {
    std::string text = "start: A\nA: B & C\nB: /(.{2})*/ & /(.{3})*/ & /(.{5})*/ & /(.{7})*/ & /(.{11})*/ & /(.{13})*/";
    text += "\nC: /(.{17})*/ & /(.{19})*/ & /(.{23})*/ & /(.{29})*/ & /(.{" + std::to_string(31 + 2 * i) + "})*/";
    return text;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      const auto grammar = (*engine)->Compile({Kind::kLark, endless(i)});
      ASSERT_FALSE(grammar.ok());
      EXPECT_EQ(grammar.status().code(), StatusCode::kInvalidArgument) << grammar.status().message();
      EXPECT_TRUE(grammar.status().message().starts_with("lark: compiling it takes ")) << grammar.status().message();
    });
  }
  for (int i = 0; i < 5; ++i) {
    const auto good = (*engine)->Compile({Kind::kRegex, "[a-c]{" + std::to_string(i + 1) + "}"});
    EXPECT_TRUE(good.ok()) << good.status().message();
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HostileRulesTest, WithoutItsHelperNoClientsRuleIsCompiled) {
  const std::string before = std::getenv("TACTUS_GRAMMAR_HELPER");
  setenv("TACTUS_GRAMMAR_HELPER", "/nowhere/tactus-grammar", 1);
  auto engine = GrammarEngine::Create(SmallVocabulary(), {});
  ASSERT_TRUE(engine.ok());
  const auto rule = (*engine)->Compile({Kind::kRegex, "a"});
  EXPECT_EQ(rule.status().code(), StatusCode::kUnavailable) << rule.status().message();
  EXPECT_TRUE((*engine)->Compile({Kind::kJsonObject, ""}).ok());  // is ours
  setenv("TACTUS_GRAMMAR_HELPER", before.c_str(), 1);
  EXPECT_TRUE((*engine)->Compile({Kind::kRegex, "a"}).ok()) << "it is there now";
}

// A state for each remainder.
constexpr const char* kLarge = R"({"type": "integer", "multipleOf": 9973})";

TEST_F(HostileRulesTest, StatesOfAllAnswersHaveOneSum) {
  GrammarLimits limits;
  limits.compile_ms *= 4 * test::kLimitFactor;
  limits.trial_ms *= 4 * test::kLimitFactor;
  limits.memory_bytes = int64_t{40} << 20;
  auto engine = GrammarEngine::Create(SmallVocabulary(), limits);
  ASSERT_TRUE(engine.ok());
  const auto grammar = (*engine)->Compile({Kind::kJsonSchema, kLarge});
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const int64_t before = (*engine)->memory_in_use();
  EXPECT_GT(before, 1 << 20);
  EXPECT_TRUE((*engine)->CheckRoom(**grammar, 1).ok());
  EXPECT_EQ((*engine)->CheckRoom(**grammar, 128).code(), StatusCode::kInvalidArgument);
  {
    std::vector<uint32_t> mask((kSmallSize + 31) / 32);
    std::vector<std::unique_ptr<GrammarState>> states;
    int refused = 0;
    for (int i = 0; i < 128; ++i) {
      states.push_back((*grammar)->Start());
      refused += states.back()->FillMask(mask) ? 0 : 1;
      EXPECT_LE((*engine)->memory_in_use(), limits.memory_bytes);
    }
    EXPECT_GT(refused, 64);
    EXPECT_LT(refused, 128);
    EXPECT_EQ((*engine)->CheckRoom(**grammar, 1).code(), StatusCode::kResourceExhausted);
    EXPECT_TRUE(states[0]->FillMask(mask)) << "those that have begun go on";
  }
  EXPECT_EQ((*engine)->memory_in_use(), before);
  std::vector<uint32_t> mask((kSmallSize + 31) / 32);
  EXPECT_TRUE((*grammar)->Start()->FillMask(mask));
}

// Where all grow, those that have most give way, and the others go on.
TEST_F(HostileRulesTest, AStateThatGrowsBeyondItsPartStartsOverOrEnds) {
  GrammarLimits limits;
  limits.compile_ms *= 4 * test::kLimitFactor;
  limits.trial_ms *= 4 * test::kLimitFactor;
  limits.memory_bytes = int64_t{8} << 20;
  auto engine = GrammarEngine::Create(SmallVocabulary(), limits);
  ASSERT_TRUE(engine.ok());
  const auto grammar = (*engine)->Compile({Kind::kRegex, "(.*a.{50}b.*|.*c.{60}d.*|.*e.{70}f.*|x*)"});
  const auto small = (*engine)->Compile({Kind::kRegex, "x+"});
  ASSERT_TRUE(grammar.ok() && small.ok());
  std::vector<std::unique_ptr<GrammarState>> states;
  for (int i = 0; i < 8; ++i) states.push_back((*grammar)->Start());
  const auto good = (*small)->Start();
  std::vector<uint32_t> mask((kSmallSize + 31) / 32);
  int ended = 0;
  for (uint32_t step = 0; step < 120; ++step) {
    for (uint32_t i = 0; i < states.size(); ++i) {
      if (states[i] == nullptr) continue;
      const auto draw = Philox4x32({i, step}, {0, 0, 0, 0})[0];
      if (!states[i]->FillMask(mask) || !states[i]->Accept(static_cast<TokenId>("abcdefgh"[draw % 8]))) {
        states[i].reset();
        ++ended;
      }
    }
    ASSERT_TRUE(good->FillMask(mask));
    ASSERT_TRUE(good->Accept('x'));
    // What one mask takes comes on top until the next.
    EXPECT_LE((*engine)->memory_in_use(), 2 * limits.memory_bytes) << step;
  }
  RecordProperty("ended", ended);
}

}  // namespace
}  // namespace tactus::grammar
