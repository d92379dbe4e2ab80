// Numbers in schemas that a double cannot hold: exact in every place, or refused by name.
#include "language/grammar/exact_schema.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "language/grammar/grammar_engine.h"
#include "language/grammar/llguidance.h"
#include "language/grammar/needs_llguidance.h"
#include "language/grammar/small_vocabulary.h"
#include "time_limit.h"

namespace tactus::language {
namespace {

using Kind = OutputRule::Kind;

class ExactSchemaTest : public testing::Test {
 protected:
  void SetUp() override {
    TACTUS_NEEDS_LLGUIDANCE();
    GrammarLimits limits;
    limits.compile_ms *= 2 * test::kLimitFactor;
    auto engine = GrammarEngine::Create(SmallVocabulary(), limits);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(engine).value();
  }
  bool Takes(Kind kind, const std::string& rule, std::string_view text) {
    const auto grammar = engine_->Compile({kind, rule});
    EXPECT_TRUE(grammar.ok()) << rule << ": " << grammar.status().message();
    if (!grammar.ok()) return false;
    const auto state = (*grammar)->Start();
    for (const char c : text) {
      if (!state->Accept(static_cast<unsigned char>(c))) return false;
    }
    return state->Accept(kEnd);
  }
  void Expect(const std::string& schema, const std::vector<const char*>& taken,
              const std::vector<const char*>& not_taken) {
    for (const char* text : taken) EXPECT_TRUE(Takes(Kind::kJsonSchema, schema, text)) << schema << " " << text;
    for (const char* text : not_taken) EXPECT_FALSE(Takes(Kind::kJsonSchema, schema, text)) << schema << " " << text;
  }
  std::string ErrorOf(const std::string& schema) {
    const auto grammar = engine_->Compile({Kind::kJsonSchema, schema});
    return grammar.ok() ? "no error" : grammar.status().message();
  }
  std::unique_ptr<GrammarEngine> engine_;
};

TEST_F(ExactSchemaTest, ConstantsAreExact) {
  Expect(R"({"const": 9007199254740993})", {"9007199254740993"}, {"9007199254740992", "9007199254740994"});
  Expect(R"({"enum": [9007199254740993, -1234567890123456789, 18446744073709551615, "x", 7]})",
         {"9007199254740993", "-1234567890123456789", "18446744073709551615", "\"x\"", "7"},
         {"9007199254740992", "-1234567890123456788", "18446744073709551614", "8"});
  Expect(R"({"type": "integer", "enum": [9007199254740993, 1.5, "x"]})", {"9007199254740993"}, {"1.5", "\"x\""});
  Expect(R"({"const": {"id": 1234567890123456789, "tags": ["a", null]}})",
         {R"({"id": 1234567890123456789, "tags": ["a", null]})"},
         {R"({"id": 1234567890123456800, "tags": ["a", null]})"});
  Expect(R"({"type": "integer", "format": "int64", "const": 9007199254740993})", {"9007199254740993"}, {"1"});
  Expect(R"({"const": 1e20})", {"100000000000000000000"}, {"100000000000000000001"});
  Expect(R"({"const": 1e3})", {"1000"}, {"1001"});
  Expect(R"({"type": "integer", "const": 1.0})", {"1"}, {"2"});
}

TEST_F(ExactSchemaTest, BoundsOfIntegersHold) {
  Expect(R"({"type": "integer", "minimum": 1234567890123456789, "maximum": 1234567890123456790})",
         {"1234567890123456789", "1234567890123456790"}, {"1234567890123456788", "1234567890123456791", "1"});
  Expect(R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})",
         {"-9223372036854775808", "0", "9223372036854775807"}, {"-9223372036854775809", "9223372036854775808"});
  Expect(R"({"type": "integer", "minimum": 0, "maximum": 18446744073709551615})", {"0", "18446744073709551615"},
         {"-1", "18446744073709551616"});
  Expect(R"({"type": "integer", "minimum": 0, "exclusiveMaximum": 18446744073709551616})", {"18446744073709551615"},
         {"18446744073709551616"});
  Expect(R"({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991})",
         {"-9007199254740991", "9007199254740991"}, {"9007199254740992"});
  Expect(R"({"type": "integer", "exclusiveMinimum": 9007199254740993})", {"9007199254740994"}, {"9007199254740993"});
  Expect(R"({"type": ["integer", "null"], "maximum": -9007199254740993})", {"null", "-9007199254740993"},
         {"-9007199254740992"});
}

TEST_F(ExactSchemaTest, BoundsOfNumbersHold) {
  const std::string doubles =
      R"({"type": "number", "minimum": -1.7976931348623157e308, "maximum": 1.7976931348623157e308})";
  Expect(doubles, {"0.5", "-1e10", "123456789012345678901234567890"}, {"1e999", "x"});
  Expect(R"({"type": "number", "minimum": -3.4028234663852886e38, "maximum": 3.4028234663852886e38})", {"1.5", "-7"},
         {"1e39", "999999999999999999999999999999999999999"});
  Expect(R"({"type": "number", "exclusiveMinimum": 0, "maximum": 1e300})", {"0.1", "1e5"}, {"0", "-1"});
}

TEST_F(ExactSchemaTest, ThePathToANumberFollowsTheSchema) {
  const std::string schema = R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 3},
      "id": {"$ref": "#/$defs/id"}, "more": {"type": "array", "items": {"$ref": "#/$defs/id"}, "maxItems": 2}},
      "required": ["id"], "additionalProperties": false,
      "$defs": {"id": {"type": "integer", "minimum": 1234567890123456789, "maximum": 1234567890123456790}}})";
  Expect(schema,
         {R"({"id": 1234567890123456789})", R"({"name": "a", "id": 1234567890123456790})",
          R"({"id": 1234567890123456789, "more": []})",
          R"({"id": 1234567890123456789, "more": [1234567890123456789, 1234567890123456790]})"},
         {"{}", R"({"id": 1234567890123456788})", R"({"name": "long", "id": 1234567890123456789})",
          R"({"id": 1234567890123456789, "x": 1})", R"({"id": 1234567890123456789, "more": [1]})",
          R"({"id": 1234567890123456789, "name": "a"})",
          R"({"id": 1234567890123456789, "more": [1234567890123456789, 1234567890123456789, 1234567890123456789]})"});
  Expect(R"({"type": "object", "properties": {"id": {"const": 9007199254740993}}})",
         {"{}", R"({"id": 9007199254740993})", R"({"id": 9007199254740993, "a": [1]})", R"({"a": 1})"},
         {R"({"id": 9007199254740992})", R"({"a": 1, "id": 9007199254740992})"});
  Expect(R"({"anyOf": [{"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807},
                       {"type": "string", "pattern": "^-?[0-9]+$"}]})",
         {"-9223372036854775808", "\"-12\""}, {"9223372036854775808", "\"a\""});
  Expect(R"({"type": "array", "minItems": 1, "items": {"const": 9007199254740993}})",
         {"[9007199254740993]", "[9007199254740993, 9007199254740993]"}, {"[]", "[9007199254740992]"});
  Expect(R"({"type": "object", "additionalProperties": {"type": "integer", "format": "uint64", "minimum": 0,
           "maximum": 18446744073709551615}})",
         {"{}", R"({"a": 18446744073709551615, "b": 0})"}, {R"({"a": 18446744073709551616})", R"({"a": -1})"});
  // A property may be named like a keyword.
  Expect(R"({"type": "object", "properties": {"default": {"const": 9007199254740993}, "enum": {"type": "boolean"}},
           "required": ["default"], "additionalProperties": false})",
         {R"({"default": 9007199254740993, "enum": true})"}, {R"({"default": 9007199254740992})"});
  // A schema that only a reference reaches.
  Expect(R"({"$ref": "#/examples/0", "examples": [{"const": 9007199254740993}]})", {"9007199254740993"},
         {"9007199254740992"});
  // A schema that contains itself.
  Expect(R"({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"id": {"const": 9007199254740993},
           "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}}, "required": ["id", "next"],
           "additionalProperties": false}}})",
         {R"({"id": 9007199254740993, "next": {"id": 9007199254740993, "next": null}})"},
         {R"({"id": 9007199254740993, "next": {"id": 9007199254740992, "next": null}})"});
}

TEST_F(ExactSchemaTest, ListsOfSuchNumbersHaveTheirLengths) {
  for (int least = 0; least <= 3; ++least) {
    for (int most = least; most <= 3; ++most) {
      const std::string schema = R"({"type": "array", "items": {"const": 9007199254740993}, "minItems": )" +
                                 std::to_string(least) + R"(, "maxItems": )" + std::to_string(most) + "}";
      std::string list = "[";
      for (int items = 0; items <= 4; ++items) {
        EXPECT_EQ(Takes(Kind::kJsonSchema, schema, list + "]"), items >= least && items <= most)
            << schema << ", " << items << " items";
        list += items == 0 ? "9007199254740993" : ", 9007199254740993";
      }
    }
  }
}

TEST_F(ExactSchemaTest, NumbersThatCannotBeExactAreNamed) {
  EXPECT_NE(
      ErrorOf(R"({"type": "integer", "maximum": 9223372036854775807, "multipleOf": 3})").find("9223372036854775807"),
      std::string::npos);
  EXPECT_NE(ErrorOf(R"({"properties": {"a": {"allOf": [{"type": "integer"}, {"minimum": 9007199254740993}]}}})")
                .find("9007199254740993"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"const": 123456789012345678901234567890})").find("123456789012345678901234567890"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"const": 0.12345678901234567890123})").find("0.12345678901234567890123"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"minimum": 1e400})").find("1e400"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"type": "array", "items": [{"const": 9007199254740993}]})").find("9007199254740993"),
            std::string::npos);
  EXPECT_EQ(ErrorOf(R"({"type": "number", "default": 0.12345678901234567890123})"), "no error");
}

// An unknown keyword beside such a number still affects it.
TEST_F(ExactSchemaTest, NoKeywordIsDroppedBesideSuchANumber) {
  const std::string bounds = R"("minimum": 9007199254740993, "maximum": 9007199254740999)";
  for (const char* beside :
       {R"("not": {"const": 9007199254740993})", R"("if": {"minimum": 5}, "then": {"maximum": 3})",
        R"("if": {"type": "integer"}, "then": false)", R"("else": false)", R"("multipleOf": 2)",
        R"("dependentSchemas": {"a": false})", R"("unknown": 1)", R"("contains": {"type": "null"})",
        R"("$dynamicRef": "#a")", R"("unevaluatedProperties": false)"}) {
    const std::string keyword = std::string(beside).substr(1, std::string(beside).find('"', 1) - 1);
    for (const char* type : {"integer", "number"}) {
      const std::string schema = std::string(R"({"type": ")") + type + "\", " + bounds + ", " + beside + "}";
      EXPECT_NE(ErrorOf(schema).find("'" + keyword + "'"), std::string::npos) << schema << ": " << ErrorOf(schema);
      const std::string inside = R"({"type": "object", "properties": {"p": )" + schema + "}}";
      EXPECT_NE(ErrorOf(inside).find("'" + keyword + "'"), std::string::npos) << inside << ": " << ErrorOf(inside);
    }
  }
  for (const char* odd :
       {R"({"type": "integer", "minimum": true, "maximum": 9007199254740993})",
        R"({"type": "object", "properties": {"p": {"const": 9007199254740993}}, "required": "p"})",
        R"({"type": "object", "properties": {"p": {"const": 9007199254740993}}, "required": [1]})",
        R"({"type": "object", "properties": {"p": {"const": 9007199254740993}}, "additionalProperties": 5})",
        R"({"type": "object", "properties": [{"const": 9007199254740993}]})"}) {
    EXPECT_NE(ErrorOf(odd), "no error") << odd;
  }
  Expect(R"({"type": ["integer", "string"], "title": "x", "minLength": 2, "maximum": 9007199254740993})",
         {"9007199254740993", "\"ab\""}, {"9007199254740994", "\"a\""});
}

TEST_F(ExactSchemaTest, MultiplesAreReadExactly) {
  Expect(R"({"type": "number", "multipleOf": 0.07})", {"0.14", "7", "0.07"}, {"0.15", "0.08"});
  Expect(R"({"type": "number", "multipleOf": 0.01})", {"0.14", "3"}, {"0.145"});
  EXPECT_NE(ErrorOf(R"({"type": "integer", "multipleOf": 9007199254740993})").find("9007199254740993"),
            std::string::npos);
}

TEST_F(ExactSchemaTest, SchemasWithinAGrammarAreExact) {
  const std::string strict =
      R"(start: "call " %json {"type": "object", "properties": {"id": {"const": 9007199254740993}},
      "required": ["id"], "additionalProperties": false,
      "x-guidance": {"whitespace_flexible": false, "item_separator": ",[ ]?", "key_separator": ":[ ]?"}})";
  EXPECT_TRUE(Takes(Kind::kLark, strict, R"(call {"id":9007199254740993})"));
  EXPECT_TRUE(Takes(Kind::kLark, strict, R"(call {"id": 9007199254740993})"));
  EXPECT_FALSE(Takes(Kind::kLark, strict, R"(call {"id": 9007199254740992})"));
  // Where the number cannot be kept, a tool that is not strict loses only that keyword.
  const std::string lenient = R"(start: %json {"type": "integer", "maximum": 9007199254740993, "multipleOf": 2,
      "x-guidance": {"whitespace_flexible": false, "lenient": true}})";
  EXPECT_TRUE(Takes(Kind::kLark, lenient, "4"));
  EXPECT_FALSE(Takes(Kind::kLark, lenient, "5"));
}

TEST(ExactSchema, LeavesUnchangedWhatTheLibraryHoldsExactly) {
  for (const char* schema : {R"({"type": "integer", "minimum": -9007199254740991})", R"({"const": 0.1})", "{}",
                             R"({"enum": [1e15, 2.5, {"a": [1]}]})", R"({"default": 9007199254740993})"}) {
    const auto grammar = ExactGrammar(Json::parse(schema));
    ASSERT_TRUE(grammar.ok());
    EXPECT_FALSE(*grammar) << **grammar;
  }
}

}  // namespace
}  // namespace tactus::language
