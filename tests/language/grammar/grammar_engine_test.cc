// Rules compiled over a small vocabulary, and answers checked token by token. Skipped where llguidance's library is not
// installed (scripts/get_llguidance.sh).
#include "language/grammar/grammar_engine.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "base/rng.h"
#include "language/grammar/llguidance.h"
#include "language/grammar/needs_llguidance.h"
#include "language/grammar/small_vocabulary.h"
#include "time_limit.h"

namespace tactus::language {
namespace {

using Kind = OutputRule::Kind;
using Tokens = std::vector<TokenId>;

class GrammarEngineTest : public testing::Test {
 protected:
  void SetUp() override {
    TACTUS_NEEDS_LLGUIDANCE();
    GrammarLimits limits;
    limits.compile_ms *= 2 * test::kLimitFactor;  // for a busy machine
    limits.trial_ms *= 2 * test::kLimitFactor;
    limits.trial_bytes *= test::kLimitFactor;
    auto engine = GrammarEngine::Create(SmallVocabulary(), limits);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(engine).value();
  }

  std::shared_ptr<const TokenGrammar> Compile(Kind kind, std::string text) {
    auto grammar = engine_->Compile({kind, std::move(text)});
    EXPECT_TRUE(grammar.ok()) << grammar.status().message();
    return grammar.ok() ? *grammar : nullptr;
  }
  std::unique_ptr<GrammarState> Start(Kind kind, std::string text) { return Compile(kind, std::move(text))->Start(); }
  std::string ErrorOf(Kind kind, std::string text) {
    const auto grammar = engine_->Compile({kind, std::move(text)});
    if (grammar.ok()) return "no error";
    EXPECT_EQ(grammar.status().code(), StatusCode::kInvalidArgument) << grammar.status().message();
    return grammar.status().message();
  }

  std::unique_ptr<GrammarEngine> engine_;
};

std::set<TokenId> Allowed(GrammarState& state) {
  std::vector<uint32_t> mask((kSmallSize + 31) / 32, ~0u);
  EXPECT_TRUE(state.FillMask(mask));
  std::set<TokenId> allowed;
  for (TokenId id = 0; id < static_cast<TokenId>(mask.size() * 32); ++id) {
    if (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) allowed.insert(id);
  }
  return allowed;
}

// Number of bytes of `text` accepted before one is refused; -1: all of them and then the end.
int AcceptedBytes(GrammarState& state, std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (!state.Accept(static_cast<unsigned char>(text[i]))) return static_cast<int>(i);
  }
  return state.Accept(kEnd) ? -1 : static_cast<int>(text.size());
}

constexpr const char* kPerson =
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer",
        "minimum": 0, "maximum": 150}}, "required": ["name"], "additionalProperties": false})";

TEST_F(GrammarEngineTest, ASchemaRefusesTheFirstWrongByte) {
  const auto grammar = Compile(Kind::kJsonSchema, kPerson);
  const auto accepted = [&](std::string_view text) { return AcceptedBytes(*grammar->Start(), text); };
  EXPECT_EQ(accepted(R"({"name": "cat", "age": 12})"), -1);
  EXPECT_EQ(accepted(R"({"name": ""})"), -1);
  EXPECT_EQ(accepted(R"({"name": "cat"})"), -1);
  EXPECT_EQ(accepted(R"({"age": 12})"), 2);                        // name is required, and comes first
  EXPECT_EQ(accepted(R"({"name": "kitten"})"), 15);                // longer than 5
  EXPECT_EQ(accepted(R"({"name": "cat", "age": 151})"), 25);       // above the maximum
  EXPECT_EQ(accepted(R"({"name": "cat", "age": 1.5})"), 24);       // not an integer
  EXPECT_EQ(accepted(R"({"name": "cat", "colour": "red"})"), 17);  // no such property
  EXPECT_EQ(accepted(R"({"name": "cat")"), 14);                    // not complete: the end is refused
  EXPECT_EQ(accepted(R"({"name": "cat"}})"), 15);                  // continues after the end
  EXPECT_EQ(accepted(R"( {"name": "cat"})"), 0);
}

TEST_F(GrammarEngineTest, JsonHasOneSpacing) {
  const auto any = Compile(Kind::kJsonObject, "");
  EXPECT_EQ(AcceptedBytes(*any->Start(), R"({"a": 1, "b": [2, {"c": null}], "d": {}})"), -1);
  EXPECT_EQ(AcceptedBytes(*any->Start(), R"({"a":1})"), 5);
  EXPECT_EQ(AcceptedBytes(*any->Start(), R"({"a":  1})"), 6);
  EXPECT_EQ(AcceptedBytes(*any->Start(), "{\n"), 1);
  EXPECT_EQ(AcceptedBytes(*any->Start(), R"({"a": 1 })"), 7);
  EXPECT_EQ(AcceptedBytes(*any->Start(), R"([1])"), 0);
  // The schema cannot change it either.
  const auto own = Compile(Kind::kJsonSchema, R"({"type": "array", "x-guidance": {"whitespace_flexible": true}})");
  EXPECT_EQ(AcceptedBytes(*own->Start(), "[1, 2]"), -1);
  EXPECT_EQ(AcceptedBytes(*own->Start(), "[ 1]"), 1);
}

TEST_F(GrammarEngineTest, RegexesAndLarkGrammarsMatchTheWholeAnswer) {
  const auto regex = Compile(Kind::kRegex, "[a-c]{2,3}|yes");
  EXPECT_EQ(AcceptedBytes(*regex->Start(), "ab"), -1);
  EXPECT_EQ(AcceptedBytes(*regex->Start(), "yes"), -1);
  EXPECT_EQ(AcceptedBytes(*regex->Start(), "abca"), 3);
  EXPECT_EQ(AcceptedBytes(*regex->Start(), "a"), 1);
  EXPECT_EQ(AcceptedBytes(*Start(Kind::kRegex, "^[a-c]+$"), "abc"), -1);
  const auto choice = Compile(Kind::kLark, R"(start: "yes" | "no" | "no, \"thanks\"\n")");
  EXPECT_EQ(AcceptedBytes(*choice->Start(), "yes"), -1);
  EXPECT_EQ(AcceptedBytes(*choice->Start(), "no"), -1);
  EXPECT_EQ(AcceptedBytes(*choice->Start(), "no, \"thanks\"\n"), -1);
  EXPECT_EQ(AcceptedBytes(*choice->Start(), "maybe"), 0);
  const auto sum = Compile(Kind::kLark, "start: term (\"+\" term)*\nterm: /[0-9]+/ | \"(\" start \")\"");
  EXPECT_EQ(AcceptedBytes(*sum->Start(), "1+(2+34)"), -1);
  EXPECT_EQ(AcceptedBytes(*sum->Start(), "1+(2+34"), 7);
  EXPECT_EQ(AcceptedBytes(*sum->Start(), "1)"), 1);
}

TEST_F(GrammarEngineTest, MasksHoldAllowedTokensAndEndsWhereTheTextMayEnd) {
  const auto state = Start(Kind::kRegex, "[ab]c?");
  EXPECT_EQ(Allowed(*state), (std::set<TokenId>{'a', 'b'}));
  ASSERT_TRUE(state->Accept('a'));
  EXPECT_EQ(Allowed(*state), (std::set<TokenId>{'c', kEnd, kOtherEnd}));
  ASSERT_TRUE(state->Accept('c'));
  EXPECT_EQ(Allowed(*state), (std::set<TokenId>{kEnd, kOtherEnd}));  // only the end is allowed
  ASSERT_TRUE(state->Accept(kOtherEnd));
  EXPECT_EQ(Allowed(*state), (std::set<TokenId>{kEnd, kOtherEnd}));
  EXPECT_FALSE(state->Accept('a'));
}

TEST_F(GrammarEngineTest, TokensWithoutTextAreInNoMask) {
  const auto state = Start(Kind::kRegex, "(.|\n)*");
  const std::set<TokenId> allowed = Allowed(*state);
  EXPECT_TRUE(allowed.contains(kEnd));
  EXPECT_TRUE(allowed.contains(256));  // {"
  EXPECT_FALSE(allowed.contains(kCall));
  for (TokenId id = kCall + 1; id < 320; ++id) EXPECT_FALSE(allowed.contains(id)) << id;
  // A special token's name as text consists of other tokens.
  EXPECT_EQ(AcceptedBytes(*state, "<call><end>"), -1);
}

TEST_F(GrammarEngineTest, ALarkGrammarNamesSpecialTokens) {
  const auto state = Start(Kind::kLark, "start: <call> \"yes\"");
  EXPECT_EQ(Allowed(*state), (std::set<TokenId>{kCall}));
  EXPECT_FALSE(state->Accept('<'));
  ASSERT_TRUE(state->Accept(kCall));
  EXPECT_EQ(AcceptedBytes(*state, "yes"), -1);
}

TEST_F(GrammarEngineTest, ARefusedTokenChangesNothing) {
  const auto state = Start(Kind::kJsonSchema, kPerson);
  ASSERT_TRUE(state->Accept('{'));
  const std::set<TokenId> before = Allowed(*state);
  for (const TokenId token : {TokenId{'x'}, kEnd, kCall, TokenId{kSmallSize - 1}, TokenId{kSmallSize}, TokenId{-1}}) {
    EXPECT_FALSE(state->Accept(token)) << token;
    EXPECT_EQ(Allowed(*state), before) << token;
  }
  EXPECT_EQ(AcceptedBytes(*state, R"("name": "cat"})"), -1);
}

TEST_F(GrammarEngineTest, CountValidLooksAheadAndChangesNothing) {
  const auto state = Start(Kind::kJsonSchema, kPerson);
  const auto count = [&](Tokens tokens) { return state->CountValid(tokens); };
  EXPECT_EQ(count({}), 0);
  const Tokens whole = EncodeSmall(R"({"name": "cat"})");
  const auto length = static_cast<int32_t>(whole.size());
  EXPECT_EQ(count(whole), length);
  Tokens ended = whole;
  ended.push_back(kEnd);
  EXPECT_EQ(count(ended), length + 1);
  ended.push_back('x');
  EXPECT_EQ(count(ended), length + 1);
  EXPECT_EQ(count({256, 262, 'x', 'y'}), 2);    // {" name x
  EXPECT_EQ(count({256, kSmallSize, 262}), 1);  // not a token
  EXPECT_EQ(count({-1}), 0);
  EXPECT_EQ(count(EncodeSmall(R"({"age)")), 1);
  for (const TokenId token : whole) ASSERT_TRUE(state->Accept(token)) << token;
  EXPECT_EQ(count({kEnd, kEnd}), 1);
  EXPECT_EQ(count({'x'}), 0);
}

TEST_F(GrammarEngineTest, ForcedTokensAreSpelledAsTheTokeniserDoes) {
  const auto state = Start(Kind::kJsonSchema, R"({"type": "object", "properties": {"name": {"type": "boolean"}},
                                                  "required": ["name"], "additionalProperties": false})");
  Tokens forced;
  state->Forced(16, &forced);
  // {" name ": and not na, me; the value may be true or false.
  ASSERT_GE(forced.size(), 2u);
  const Tokens spelled = EncodeSmall(R"({"name": )");
  ASSERT_LE(forced.size(), spelled.size());
  EXPECT_TRUE(std::equal(forced.begin(), forced.end(), spelled.begin()));
  Tokens one;
  state->Forced(1, &one);
  EXPECT_EQ(one, Tokens{256});
  state->Forced(0, &one);
  EXPECT_EQ(one, Tokens{});
  EXPECT_EQ(Allowed(*state), (std::set<TokenId>{256}));  // the mask agrees
  for (const TokenId token : forced) ASSERT_TRUE(state->Accept(token));
  for (const char c : std::string_view(R"({"name": )").substr(forced.size() == 3 ? 9 : 6)) {
    ASSERT_TRUE(state->Accept(static_cast<unsigned char>(c)));
  }
  state->Forced(16, &forced);
  EXPECT_EQ(forced, Tokens{});  // true or false
  ASSERT_TRUE(state->Accept('t'));
  state->Forced(16, &forced);
  ASSERT_FALSE(forced.empty());
}

TEST_F(GrammarEngineTest, ForcedTextKeepsItsBytesIfTheTokeniserChangesIt) {
  Vocabulary v = SmallVocabulary();
  v.encode = [](std::string_view) { return Tokens{'?', '?'}; };
  auto engine = GrammarEngine::Create(std::move(v));
  ASSERT_TRUE(engine.ok());
  const auto grammar = (*engine)->Compile({Kind::kLark, "start: \"name it\""});
  ASSERT_TRUE(grammar.ok());
  engine->reset();  // after the engine is destroyed it is not called any more
  Tokens forced;
  (*grammar)->Start()->Forced(16, &forced);
  EXPECT_EQ(forced, (Tokens{262, ' ', 'i', 't'}));
}

// A long text is tokenised in pieces, and the forced text is the same.
TEST_F(GrammarEngineTest, ALongTextIsForcedInPieces) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "with a sanitizer a mask of this rule takes longer than the limit";
#endif
  std::atomic<size_t> longest = 0;
  Vocabulary v = SmallVocabulary();
  v.encode = [&](std::string_view text) {
    longest = std::max(longest.load(), text.size());
    return EncodeSmall(text);
  };
  auto engine = GrammarEngine::Create(std::move(v));
  ASSERT_TRUE(engine.ok());
  std::string text;
  while (text.size() < 20'000) text += "the cat \u00e9\u20ac yes or no, ";
  text += "end";
  const auto grammar = (*engine)->Compile({Kind::kLark, "start: \"" + text + "\""});
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const auto state = (*grammar)->Start();
  const std::vector<std::string> tokens = SmallVocabulary().tokens;
  std::string answer;
  for (Tokens forced; answer.size() < text.size();) {
    state->Forced(100'000, &forced);
    ASSERT_FALSE(forced.empty()) << "after " << answer.size() << " bytes";
    EXPECT_EQ(Allowed(*state), (std::set<TokenId>{forced[0]})) << "after " << answer.size() << " bytes";
    for (const TokenId token : forced) {
      ASSERT_TRUE(state->Accept(token)) << "after " << answer.size() << " bytes";
      answer += tokens[static_cast<size_t>(token)];
    }
  }
  EXPECT_EQ(answer, text);
  EXPECT_TRUE(state->Accept(kEnd));
  EXPECT_LT(longest, 4096u);
}

TEST_F(GrammarEngineTest, ForcedTextIsBounded) {
  const std::string item = R"({"const": ")" + std::string(1000, 'x') + R"("})";
  const auto array = [&](int items) {
    return R"({"type": "array", "minItems": )" + std::to_string(items) + R"(, "maxItems": )" + std::to_string(items) +
           R"(, "items": )" + item + "}";
  };
  EXPECT_NE(Compile(Kind::kJsonSchema, array(60)), nullptr);
  const std::string error = ErrorOf(Kind::kJsonSchema, array(300));
  EXPECT_TRUE(error.starts_with("json_schema: it forces 30")) << error;
  EXPECT_NE(error.find("the limit is 65536"), std::string::npos) << error;
  // After a choice the limit applies within the answer.
  const auto late = Start(Kind::kJsonSchema, R"({"anyOf": [{"type": "null"}, )" + array(300) + "]}");
  std::vector<uint32_t> mask((kSmallSize + 31) / 32);
  ASSERT_TRUE(late->FillMask(mask));
  ASSERT_TRUE(late->Accept('['));
  EXPECT_FALSE(late->FillMask(mask));
}

// Every text sampled from the masks is an answer: valid JSON, accepted byte by byte.
TEST_F(GrammarEngineTest, WalksThroughMasksEndInAnswers) {
  const auto grammar = Compile(Kind::kJsonSchema, R"({"type": "object", "properties": {
      "name": {"enum": ["cat", "the cat", "na\"me", "é"]}, "tags": {"type": "array", "items": {"type": "string",
      "maxLength": 3}, "maxItems": 3}, "n": {"type": "number", "minimum": -5, "exclusiveMaximum": 7}},
      "required": ["name", "n"], "additionalProperties": false})");
  std::vector<std::string> tokens = SmallVocabulary().tokens;
  for (uint32_t walk = 0; walk < 200; ++walk) {
    const auto state = grammar->Start();
    std::string text;
    TokenId token = -1;
    for (uint32_t step = 0; step < 400; ++step) {
      const std::set<TokenId> allowed = Allowed(*state);
      ASSERT_FALSE(allowed.empty()) << text;
      const auto bits = Philox4x32({walk, step}, {0, 0, 0, 0});
      token = *std::next(allowed.begin(), bits[0] % allowed.size());
      if (allowed.contains(kEnd)) token = kEnd;
      ASSERT_EQ(state->CountValid({&token, 1}), 1) << text;
      ASSERT_TRUE(state->Accept(token)) << text;
      if (token == kEnd) break;
      text += tokens[static_cast<size_t>(token)];
    }
    if (token != kEnd) continue;  // digits without end
    const auto parsed = SortedJson::parse(text, nullptr, false);
    ASSERT_TRUE(parsed.is_object()) << text;
    EXPECT_GE(parsed["n"].get<double>(), -5) << text;
    EXPECT_LT(parsed["n"].get<double>(), 7) << text;
    EXPECT_EQ(AcceptedBytes(*grammar->Start(), text), -1) << text;
  }
}

// A count has a state per byte, and the lexer holds a limited number.
TEST_F(GrammarEngineTest, ALongAnswerHasMoreStatesThanTheLexerHolds) {
  const auto state = Start(Kind::kJsonSchema, R"({"type": "string", "maxLength": 40000})");
  std::vector<uint32_t> mask((kSmallSize + 31) / 32);
  ASSERT_TRUE(state->Accept('"'));
  for (int i = 0; i < 10'000; ++i) {
    ASSERT_TRUE(state->FillMask(mask)) << i;
    ASSERT_TRUE(state->Accept(i % 2 == 0 ? 'x' : 'y')) << i;
  }
  EXPECT_EQ(AcceptedBytes(*state, "\""), -1);
}

TEST_F(GrammarEngineTest, AnswersOfOneGrammarAreIndependent) {
  const auto grammar = Compile(Kind::kRegex, "(a|b)(a|b)");
  const auto one = grammar->Start(), two = grammar->Start();
  EXPECT_TRUE(one->Accept('a'));
  EXPECT_TRUE(one->Accept('b'));
  EXPECT_EQ(Allowed(*one), (std::set<TokenId>{kEnd, kOtherEnd}));
  EXPECT_EQ(Allowed(*two), (std::set<TokenId>{'a', 'b'}));
  EXPECT_EQ(grammar->vocab_size(), kSmallSize);
}

TEST_F(GrammarEngineTest, ARuleIsCompiledOnce) {
  EXPECT_EQ(Compile(Kind::kRegex, "a+"), Compile(Kind::kRegex, "a+"));
  EXPECT_NE(Compile(Kind::kRegex, "a+"), Compile(Kind::kRegex, "b+"));
  EXPECT_NE(Compile(Kind::kRegex, "true"), Compile(Kind::kJsonSchema, "true"));
}

TEST_F(GrammarEngineTest, AGrammarOutlivesItsEngine) {
  const auto grammar = Compile(Kind::kJsonSchema, kPerson);
  engine_.reset();
  EXPECT_EQ(AcceptedBytes(*grammar->Start(), R"({"name": "cat"})"), -1);
}

TEST_F(GrammarEngineTest, UnsupportedRulesAreNamed) {
  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, R"({"properties": {"a/b": {"unevaluatedProperties": false}}})"),
            "json_schema: 'unevaluatedProperties' is not supported, at #/properties/a~1b");
  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, R"({"properties": {"format": {"format": "date"}, "d": {"format": "moon"}}})"),
            "json_schema: 'format': 'moon' is not supported, at #/properties/d");
  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, R"({"items": {"$ref": "#/$defs/gone"}})"),
            "json_schema: '$ref': there is no '#/$defs/gone', at #/items");
  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, R"({"pattern": "a(?=b)c", "type": "string"})"),
            "json_schema: 'pattern': look-around, including look-ahead and look-behind, is not supported (at character "
            "2), at #");
  // A rewritten pattern is reported in the client's form, without a place that refers to another form.
  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, R"({"properties": {"a": {"pattern": "\\d(?=b)c", "type": "string"}}})"),
            "json_schema: 'pattern': look-around, including look-ahead and look-behind, is not supported, at "
            "#/properties/a");
  EXPECT_EQ(ErrorOf(Kind::kRegex, R"(\d\d()"), "regex: unclosed group");
  for (const char* ref : {"#%2F$defs%2Fa", "#/$defs/%61", "#a"}) {
    EXPECT_EQ(ErrorOf(Kind::kJsonSchema, std::string(R"({"items": {"$ref": ")") + ref + R"("}, "$defs": {"a": {}}})"),
              std::string("json_schema: '$ref': '") + ref +
                  "' is neither '#' nor '#/' with a JSON pointer without escapes in %, at #/items");
  }
  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, R"({"type": "integer", "minimum": 5, "maximum": 3})"),
            "json_schema: minimum (5) is greater than maximum (3), at #");
  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, R"({"$ref": "#"})"),
            "json_schema: '$ref': the schema requires itself without end, so no answer can be finished; make it "
            "optional, or allow null, at #");
  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, "{"),
            "json_schema: invalid JSON at line 1, column 2: unexpected end of input; expected string literal");
  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, "[]"), "json_schema: a schema is an object, true or false");
  EXPECT_EQ(ErrorOf(Kind::kRegex, "ab("), "regex: unclosed group (at character 3)");
  EXPECT_EQ(ErrorOf(Kind::kRegex, R"(\bcat)"), "regex: anchors within a regex and word boundaries are not supported");
  EXPECT_EQ(ErrorOf(Kind::kRegex, std::string("a\0b", 3)), "regex: a zero byte in the text");
  EXPECT_EQ(ErrorOf(Kind::kLark, "start: a\na: cat"), "lark: line 2, column 4: unknown name: \"cat\"");
  EXPECT_EQ(ErrorOf(Kind::kLark, "rule: \"a\""), "lark: no start rule found");
}

// Each ends soon, with an error or a grammar, and exhausts neither the stack nor the memory.
TEST_F(GrammarEngineTest, HostileRulesEndSoon) {
  const auto nested = [](int levels, std::string_view open, std::string_view middle, std::string_view close) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += open;
    text += middle;
    for (int i = 0; i < levels; ++i) text += close;
    return text;
  };
  const std::string regex = ErrorOf(Kind::kRegex, nested(100'000, "(", "a", ")"));
  EXPECT_NE(regex.find("nested parentheses"), std::string::npos) << regex;
  EXPECT_NE(ErrorOf(Kind::kLark, "start: " + nested(100'000, "(", "\"a\"", ")")).find("too deeply nested"),
            std::string::npos);
  EXPECT_NE(ErrorOf(Kind::kJsonSchema, nested(1000, R"({"items": )", "{}", "}")).find("nested deeper than 64"),
            std::string::npos);
  (void)engine_->Compile(
      {Kind::kRegex, nested(1000, "(a*)*", "", "")});  // the vocabulary decides whether it is refused
  // Intersections of regexes: llguidance would count the work too late.
  SortedJson all = {{"type", "string"}, {"allOf", SortedJson::array()}};
  for (char c = 'a'; c <= 'u'; ++c) all["allOf"].push_back({{"pattern", std::string(".*") + c + ".*"}});
  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, all.dump()),
            "json_schema: 21 patterns and formats apply to one string, through 'allOf' and '$ref'; the limit is 8");
  // The same below properties, items and references, with few in each schema.
  SortedJson deep = {{"allOf", SortedJson::array()}};
  for (char c = 'a'; c <= 'u'; ++c) {
    const std::string name = std::string("d") + c;
    deep["$defs"][name]["properties"]["a"]["items"]["pattern"] = std::string(".*") + c + ".*";
    deep["allOf"].push_back({{"$ref", "#/$defs/" + name}});
  }
  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, deep.dump()),
            "json_schema: 21 patterns and formats apply to one string, through 'allOf' and '$ref'; the limit is 8");
  // References that double at each step, and a chain of them.
  SortedJson doubled = {{"$ref", "#/$defs/d0"}}, chain = {{"$ref", "#/$defs/d0"}};
  for (int i = 0; i < 60; ++i) {
    const SortedJson next = {{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
    doubled["$defs"]["d" + std::to_string(i)] = {{"anyOf", {next, next}}};
  }
  doubled["$defs"]["d60"] = {{"type", "null"}};
  EXPECT_EQ(AcceptedBytes(*Start(Kind::kJsonSchema, doubled.dump()), "null"), -1);
  for (int i = 0; i < 10'000; ++i)
    chain["$defs"]["d" + std::to_string(i)] = {{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
  chain["$defs"]["d10000"] = {{"type", "null"}};
  EXPECT_EQ(AcceptedBytes(*Start(Kind::kJsonSchema, chain.dump()), "null"), -1);
  std::string intersection = "start: A\nA: /.*a.*/";
  for (char c = 'b'; c <= 'x'; ++c) intersection += std::string(" & /(.*") + c + ".*){5}/";
  EXPECT_EQ(ErrorOf(Kind::kLark, intersection),
            "lark: 24 expressions are intersected ('&') in one definition and those that it names; the limit is 8; "
            "intersect fewer");
  // Counts that a state machine would have to unfold.
  EXPECT_NE(Compile(Kind::kRegex, "[a-z]{1,1000}{1,1000}{1,1000}"), nullptr);
  EXPECT_NE(Compile(Kind::kJsonSchema, R"({"type": "string", "minLength": 1000000})"), nullptr);
  EXPECT_NE(Compile(Kind::kJsonSchema, R"({"type": "array", "minItems": 1000000})"), nullptr);

  EXPECT_EQ(ErrorOf(Kind::kJsonSchema, R"({"type": "integer", "multipleOf": 1000003})"),
            "json_schema: 'multipleOf': 1000003 has more than 10000 remainders, the limit, at #");

  const auto large = engine_->Compile({Kind::kRegex, std::string((512 << 10) + 1, 'a')});
  EXPECT_EQ(large.status().code(), StatusCode::kTooLarge);
  EXPECT_EQ(large.status().message(), "regex: 524289 bytes; the limit is 524288");
}

TEST_F(GrammarEngineTest, AChoiceOfThousandsCompiles) {
  std::string text = "start: CHOICE\nCHOICE: ";
  for (int i = 0; i < 4096; ++i)
    text += (i > 0 ? " | \"" : "\"") + std::string("customer-") + std::to_string(100'000 + i) + "-account\"";
  const auto grammar = Compile(Kind::kLark, text);
  EXPECT_EQ(AcceptedBytes(*grammar->Start(), "customer-104095-account"), -1);
  EXPECT_EQ(AcceptedBytes(*grammar->Start(), "customer-104096-account"), 14);
}

// Its work grows with every token and would delay all answers of its steps.
TEST_F(GrammarEngineTest, AnAmbiguousGrammarEndsWhenItsTimeIsSpent) {
  const auto state = Start(Kind::kLark, "start: e\ne: e e | e e e | \"a\"");
  std::vector<uint32_t> mask((kSmallSize + 31) / 32);
  int tokens = 0;
  while (tokens < 600 && state->FillMask(mask) && state->Accept('a')) ++tokens;
  EXPECT_GT(tokens, 20);
  EXPECT_LT(tokens, 600) << "it continues without limit";
  EXPECT_FALSE(state->FillMask(mask));
  const TokenId next = 'a';
  EXPECT_EQ(state->CountValid({&next, 1}), 0);
  std::vector<TokenId> forced;
  state->Forced(4, &forced);
  EXPECT_TRUE(forced.empty());
}

TEST_F(GrammarEngineTest, ACompilationIsAbandonedAtItsTimeLimit) {
  GrammarLimits limits;
  limits.compile_ms = 0;
  auto engine = GrammarEngine::Create(SmallVocabulary(), limits);
  ASSERT_TRUE(engine.ok());
  const auto late = (*engine)->Compile({Kind::kRegex, "a"});
  ASSERT_FALSE(late.ok());
  // Without time it does not even wait for a place.
  EXPECT_NE(late.status().message().find("compil"), std::string::npos) << late.status().message();
  std::atomic<bool> stop = true;
  EXPECT_EQ(engine_->Compile({Kind::kRegex, "b"}, StopToken(&stop)).status().code(), StatusCode::kCancelled);
}

TEST_F(GrammarEngineTest, ManyThreadsCompileAndUseRules) {
  std::vector<std::thread> threads;
  std::atomic<int> answers = 0;
  const auto shared = Compile(Kind::kJsonObject, "");
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        const auto own =
            engine_->Compile({Kind::kRegex, std::string("a{") + std::to_string(t * 100 + i % 5 + 1) + "}"});
        if (!own.ok()) continue;
        const std::string text(static_cast<size_t>(t * 100 + i % 5 + 1), 'a');
        answers += AcceptedBytes(*(*own)->Start(), text) == -1;
        answers += AcceptedBytes(*shared->Start(), R"({"a": [1, 2]})") == -1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answers, 160);
}

TEST_F(GrammarEngineTest, AVocabularyWithoutAnEndIsRefused) {
  Vocabulary v = SmallVocabulary();
  v.end_ids.clear();
  const auto engine = GrammarEngine::Create(std::move(v));
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kUnimplemented);
}

// A maximum that no answer reaches equals none; a minimum has a limit.
TEST_F(GrammarEngineTest, LargeCountsAreAcceptedOrNamed) {
  for (const char* most : {"2147483647", "2147483648", "4294967295", "4294967296", "4294967297", "9007199254740993",
                           "18446744073709551615", "1e300"}) {
    for (const std::string& schema :
         {std::string(R"({"type": "string", "maxLength": )") + most + "}",
          std::string(R"({"type": "array", "items": {"type": "null"}, "maxItems": )") + most + "}",
          std::string(R"({"type": "object", "maxProperties": )") + most + "}"}) {
      const auto grammar = Compile(Kind::kJsonSchema, schema);
      ASSERT_NE(grammar, nullptr) << schema;
      const char* const text = schema.find("string") != std::string::npos  ? R"("aaa")"
                               : schema.find("array") != std::string::npos ? "[null, null]"
                                                                           : R"({"a": 1, "b": 2})";
      EXPECT_EQ(AcceptedBytes(*grammar->Start(), text), -1) << schema;
      EXPECT_EQ(AcceptedBytes(*Start(Kind::kLark, "start: %json " + schema),
                              schema.find("object") != std::string::npos ? R"({"a":1})" : text),
                -1)
          << schema;
    }
  }
  for (const char* least : {"minLength", "minItems", "minProperties"}) {
    const std::string schema = std::string("{\"") + least + "\": 4294967296}";
    EXPECT_EQ(ErrorOf(Kind::kJsonSchema, schema),
              std::string("json_schema: '") + least +
                  "': 4294967296 is beyond 2147483647, the limit of a minimum; give a smaller one, at #");
    EXPECT_NE(ErrorOf(Kind::kLark, "start: %json " + schema).find("2147483647"), std::string::npos);
  }
  EXPECT_EQ(AcceptedBytes(*Start(Kind::kRegex, "a{2,4294967296}"), "aaa"), -1);
  EXPECT_EQ(AcceptedBytes(*Start(Kind::kRegex, "a{2,4294967296}"), "a"), 1);
  EXPECT_EQ(
      AcceptedBytes(*Start(Kind::kJsonSchema, R"({"type": "string", "pattern": "^a{2,99999999999}$"})"), R"("aa")"),
      -1);
  EXPECT_EQ(ErrorOf(Kind::kRegex, "a{4294967296}"),
            "regex: {4294967296} is beyond 2147483647, the limit of a minimum; give a smaller one");
  EXPECT_EQ(
      ErrorOf(Kind::kJsonSchema, R"({"properties": {"p": {"type": "string", "pattern": "a{4294967296,}"}}})"),
      "json_schema: 'pattern': {4294967296,} is beyond 2147483647, the limit of a minimum; give a smaller one, at "
      "#/properties/p");
  EXPECT_EQ(AcceptedBytes(*Start(Kind::kRegex, R"([{1,4294967296}]+)"), "{1,4"), -1) << "not a count";
  const std::string fault = " is beyond 2147483647, the limit; give a smaller one, or leave the maximum out: {n,}";
  EXPECT_EQ(ErrorOf(Kind::kLark, "start: A\nA: /a{2,4294967296}/"), "lark: the count {2,4294967296}" + fault);
  EXPECT_EQ(ErrorOf(Kind::kLark, "start: a{2,4294967296}\na: \"a\""), "lark: the count 4294967296" + fault);
  EXPECT_EQ(ErrorOf(Kind::kLark, "start: a~2..4294967296\na: \"a\""), "lark: the count 4294967296" + fault);
  EXPECT_EQ(AcceptedBytes(*Start(Kind::kLark, "start: \"{2,4294967296}\" // {4294967296}"), "{2,4294967296}"), -1);
}

}  // namespace
}  // namespace tactus::language
