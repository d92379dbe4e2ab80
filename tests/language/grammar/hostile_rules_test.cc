// Rules that do not end, and the memory of those that do. Skipped where llguidance's library is not installed
// (scripts/get_llguidance.sh).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/thread_cpu.h"
#include "language/grammar/deep_calls.h"
#include "language/grammar/grammar_engine.h"
#include "language/grammar/llg_vocabulary.h"
#include "language/grammar/llguidance.h"
#include "language/grammar/needs_llguidance.h"
#include "language/grammar/rule_cache.h"
#include "language/grammar/rule_source.h"
#include "language/grammar/small_vocabulary.h"
#include "time_limit.h"

namespace tactus::language {
namespace {

using Kind = OutputRule::Kind;

// Definitions that each refer to the next, with `inner` around each reference; the last is `end`.
std::string Chain(int length, int nested, const std::string& end) {
  std::string text = R"({"$ref": "#/$defs/0", "$defs": {)";
  for (int i = 0; i < length; ++i) {
    text += '"' + std::to_string(i) + "\":";
    if (i + 1 == length) {
      text += end;
      break;
    }
    for (int level = 0; level < nested; ++level) text += R"({"allOf":[)";
    text += R"({"$ref":"#/$defs/)" + std::to_string(i + 1) + "\"}";
    for (int level = 0; level < nested; ++level) text += "]}";
    text += ',';
  }
  return text + "}}";
}

// The error in a rule before it is compiled, and the CPU time of finding it.
std::string Read(Kind kind, const std::string& text, double* seconds = nullptr) {
  DeepCalls calls(1, kCompileStackBytes);
  std::string said;
  int64_t ns = 0;
  const auto read = [&] {
    const int64_t begin_ns = ThreadCpuNs();
    const auto source = RuleSource::Of({kind, text});
    said = source.ok() ? (*source)->Check().message() : source.status().message();
    ns = ThreadCpuNs() - begin_ns;
  };
  EXPECT_TRUE(calls.Run(read, {.timeout_ms = 600'000}).ok());
  if (seconds != nullptr) *seconds = static_cast<double>(ns) * 1e-9;
  return said;
}

constexpr const char* kLost = R"({"const": 12345678901234567890})";
const std::string kTooDeep =
    "'$ref' and 'allOf' lead through 10001 schemas, one within the other, to a number beyond 2^53; the limit is 10000; "
    "refer to it more directly, or give a smaller number";

// Without an engine, and so without the library.
TEST(HostileSchemas, DeepReferencesAreNamedAndNotFollowed) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer does not support stacks above 64 MiB and reports false errors there";
#endif
  const std::string deep = Chain(790, 25, kLost);
  EXPECT_EQ(Read(Kind::kJsonSchema, deep), "json_schema: " + kTooDeep);
  EXPECT_EQ(Read(Kind::kLark, "start: %json " + deep), "lark: " + kTooDeep);
  EXPECT_EQ(Read(Kind::kJsonSchema, Chain(80, 25, kLost)), "");
  // Without such a number no grammar is written.
  EXPECT_EQ(Read(Kind::kJsonSchema, Chain(790, 25, R"({"const": 7})")),
            "json_schema: 'allOf' and '$ref' bring too many schemas together: the patterns and formats on one string "
            "cannot be counted within 3000000 steps, the limit; refer to fewer, or more directly");
}

TEST(HostileSchemas, CyclesOfDefinitionsAreNotFollowedEndlessly) {
  std::string text = R"({"allOf":[{"$ref":"#/$defs/a0"},{"$ref":"#/$defs/b0"}],"$defs":{)";
  for (const auto& [name, length] : {std::pair('a', 2000), std::pair('b', 1999)}) {
    for (int i = 0; i < length; ++i) {
      text += std::string(text.back() == '{' ? "" : ",") + '"' + name + std::to_string(i) +
              R"(":{"properties":{"p":{"$ref":"#/$defs/)" + name + std::to_string((i + 1) % length) + "\"}}}";
    }
  }
  EXPECT_EQ(Read(Kind::kJsonSchema, text + "}}").substr(0, 60),
            "json_schema: 'allOf' and '$ref' bring too many schemas toget");
}

TEST(HostileSchemas, TheWorkBeforeATrialIsLinearInTheText) {
  const auto many = [](int count, const auto& one) {
    std::string text;
    for (int i = 0; i < count; ++i) text += (i > 0 ? "," : "") + one(std::to_string(i));
    return text;
  };
  std::string open = "start: \"a\" ";
  while (open.size() < 400'000) open += R"(%json {\")";
  // An object that never ends, with one more reference to it in each round.
  std::string endless = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 64; ++i) {
    endless += '"' + std::to_string(i) + R"(":{"type":"object","required":["n"],"properties":{"n":{"$ref":"#/$defs/)" +
               std::to_string(i + 1) + "\"}}},";
  }
  // Once, every use of a name searched all of its definitions.
  std::string defined_again = "start: ";
  for (int i = 0; i < 100'000; ++i) defined_again += "a ";
  for (int i = 0; i < 80'000; ++i) defined_again += "\na:";
  const auto name = [](const std::string& i) { return '"' + i + '"'; };
  const auto property = [](const std::string& i) { return '"' + i + "\":{}"; };
  endless += R"("64":{"type":"object","required":[)" + many(12'000, name) + R"(,"me"],"properties":{)" +
             many(12'000, property) + R"(,"me":{"$ref":"#/$defs/64"}}}}})";
  const struct {
    const char* what;
    Kind kind;
    std::string text;
  } cases[] = {
      {"a chain of references", Kind::kJsonSchema, Chain(6000, 0, kLost)},
      {"references to all definitions", Kind::kJsonSchema, Chain(9000, 0, R"({"const": 7})")},
      {"objects that are not closed", Kind::kLark, open},
      {"types beside values", Kind::kJsonSchema,
       R"({"type":[)" + many(25'000, [](const std::string&) { return std::string(R"("number")"); }) + R"(],"enum":[)" +
           many(9'000, [](const std::string& i) { return "12345678901234567" + i; }) + "]}"},
      {"patterns of properties", Kind::kJsonSchema,
       R"({"patternProperties":{)" + many(16'000, [](const std::string& i) { return '"' + i + "\\\\d\":{}"; }) + "}}"},
      {"what is required", Kind::kJsonSchema, endless},
      {"a name that is defined again and again", Kind::kLark, defined_again},
      {"numbers that are written at length", Kind::kJsonSchema,
       R"({"anyOf":[)" +
           many(9'000, [](const std::string& i) { return R"({"type":"integer","minimum":1.2345)" + i + "e300}"; }) +
           "]}"},
  };
  for (const auto& one : cases) {
    double seconds = 0;
    ASSERT_LE(one.text.size(), size_t{512} << 10) << one.what;
    const std::string said = Read(one.kind, one.text, &seconds);
    RecordProperty(one.what, std::to_string(seconds) + " s: " + said.substr(0, 100));
    EXPECT_LT(seconds, 1.0 * test::kLimitFactor) << one.what << ": " << said.substr(0, 200);
  }
}

class HostileRulesTest : public testing::Test {
 protected:
  void SetUp() override { TACTUS_NEEDS_LLGUIDANCE(); }
};

// Four of them would otherwise have occupied all places forever.
TEST_F(HostileRulesTest, EndlessRulesAreKilledAndOthersAreCompiled) {
  GrammarLimits limits;
  limits.compile_ms = 60'000;
  limits.trial_ms = 300;
  auto engine = GrammarEngine::Create(SmallVocabulary(), limits);
  ASSERT_TRUE(engine.ok());
  // Within the limits of the check before it.
  const auto endless = [](int i) {
    std::string text = "start: A\nA: B & C\nB: /(.{31})*/ & /(.{37})*/ & /(.{41})*/ & /(.{43})*/";
    return text + "\nC: /(.{47})*/ & /(.{53})*/ & /(.{59})*/ & /(.{" + std::to_string(61 + 2 * i) + "})*/";
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
  // It is cached now, for a number of answers.
  const int64_t begin_ns = ThreadCpuNs();
  RuleWait wait;
  for (int i = 0; i < RuleCache::kMostAnswers; ++i)
    EXPECT_FALSE((*engine)->Compile({Kind::kLark, endless(0)}, {}, &wait).ok());
  EXPECT_EQ(wait.waited_ms, 0);
  EXPECT_LT(ThreadCpuNs() - begin_ns, 100'000'000 * test::kLimitFactor);
  EXPECT_FALSE((*engine)->Compile({Kind::kLark, endless(0)}, {}, &wait).ok());
  EXPECT_GT(wait.waited_ms, 0) << "it is tried again";
}

// One client's rules that do not end, and another client's: as many as there are places, all the time.
TEST_F(HostileRulesTest, AClientsHostileRulesDelayNoOtherClient) {
  GrammarLimits limits;
  limits.compile_ms = 60'000;
  limits.trial_ms = 60'000;
  auto engine = GrammarEngine::Create(SmallVocabulary(), limits);
  ASSERT_TRUE(engine.ok());
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      RuleWait wait{.client = "hostile"};
      const std::string text =
          "start: A\nA: /(.{31})*/ & /(.{37})*/ & /(.{41})*/ & /(.{43})*/ & /(.{" + std::to_string(47 + i) + "})*/";
      EXPECT_FALSE((*engine)->Compile({Kind::kLark, text}, StopToken(&stop), &wait).ok());
    });
  }
  for (int i = 0; i < 10; ++i) {
    RuleWait wait{.client = "honest"};
    EXPECT_TRUE((*engine)->Compile({Kind::kRegex, "[a-c]{" + std::to_string(i + 1) + "}"}, {}, &wait).ok());
    EXPECT_LT(wait.waited_ms, 30'000);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

// All rules of one request share one time limit.
TEST_F(HostileRulesTest, TheRulesOfARequestShareOneTimeLimit) {
  GrammarLimits limits;
  limits.compile_ms = 300;
  auto engine = GrammarEngine::Create(SmallVocabulary(), limits);
  ASSERT_TRUE(engine.ok());
  RuleWait wait{.client = {}, .waited_ms = 299};
  (void)(*engine)->Compile({Kind::kRegex, "[ab]"}, {}, &wait);
  wait.waited_ms = 300;
  const auto late = (*engine)->Compile({Kind::kRegex, "[abc]"}, {}, &wait);
  EXPECT_EQ(late.status().code(), StatusCode::kInvalidArgument) << late.status().message();
  EXPECT_TRUE(wait.over);
}

TEST_F(HostileRulesTest, WithoutItsHelperNoClientsRuleIsCompiled) {
  const std::string before = std::getenv("TACTUS_GRAMMAR_HELPER");
  setenv("TACTUS_GRAMMAR_HELPER", "/nowhere/tactus-grammar", 1);
  auto engine = GrammarEngine::Create(SmallVocabulary(), {});
  ASSERT_TRUE(engine.ok());
  const auto rule = (*engine)->Compile({Kind::kRegex, "a"});
  EXPECT_EQ(rule.status().code(), StatusCode::kUnavailable) << rule.status().message();
  EXPECT_TRUE((*engine)->Compile({Kind::kJsonObject, ""}).ok());  // our own rule
  setenv("TACTUS_GRAMMAR_HELPER", before.c_str(), 1);
  EXPECT_TRUE((*engine)->Compile({Kind::kRegex, "a"}).ok()) << "it is running now";
}

// A state for each remainder.
constexpr const char* kLarge = R"({"type": "integer", "multipleOf": 9973})";

TEST_F(HostileRulesTest, StatesOfAllAnswersShareOneMemoryLimit) {
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
  // From the first number that has no room beside the rule alone, larger numbers never fit.
  for (int64_t answers = 1; answers < 128; ++answers) {
    const Status room = (*engine)->CheckRoom(**grammar, answers);
    EXPECT_NE(room.code(), StatusCode::kResourceExhausted) << answers << ": " << room.message();
  }
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
    EXPECT_TRUE(states[0]->FillMask(mask)) << "started states continue";
  }
  EXPECT_EQ((*engine)->memory_in_use(), before);
  std::vector<uint32_t> mask((kSmallSize + 31) / 32);
  EXPECT_TRUE((*grammar)->Start()->FillMask(mask));
}

// When all grow, the largest ones end, and the others continue.
TEST_F(HostileRulesTest, AStateThatGrowsBeyondItsShareStartsOverOrEnds) {
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
    // One mask's allocations are added until the next.
    EXPECT_LE((*engine)->memory_in_use(), 2 * limits.memory_bytes) << step;
  }
  RecordProperty("ended", ended);
}

}  // namespace
}  // namespace tactus::language
