// Errors in schemas that are found before the grammar library, each with keyword, value, limit and place.
#include "language/grammar/schema_check.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "language/grammar/deep_calls.h"
#include "language/grammar/llg_vocabulary.h"
#include "language/grammar/schema_text.h"

namespace tactus::language {
namespace {

std::string FaultOf(const std::string& text) {
  const auto schema = ParseSchema(text);
  EXPECT_TRUE(schema.ok()) << text;
  return schema.ok() ? std::string(CheckSchema(*schema).message()) : "";
}

TEST(SchemaCheck, EmptyListsAreNamed) {
  EXPECT_EQ(FaultOf(R"({"properties": {"a": {"enum": []}}})"), "'enum': it lists no value, at #/properties/a");
  EXPECT_EQ(FaultOf(R"({"type": []})"), "'type': it lists no type, at #");
  EXPECT_EQ(FaultOf(R"({"enum": [1], "properties": {"enum": {"type": "null"}}, "default": {"enum": []}})"), "");
}

TEST(SchemaCheck, MultiplesWithTooManyRemaindersAreNamed) {
  EXPECT_EQ(FaultOf(R"({"items": {"multipleOf": 10007}})"),
            "'multipleOf': 10007 has more than 10000 remainders, the limit, at #/items");
  EXPECT_EQ(FaultOf(R"({"multipleOf": 0.00001})"), "");
  EXPECT_EQ(FaultOf(R"({"multipleOf": 1.00007})"),
            "'multipleOf': 1.00007 has more than 10000 remainders, the limit, at #");
  EXPECT_EQ(FaultOf(R"({"multipleOf": 0})"), "'multipleOf': 0 is not above 0, at #");
  EXPECT_EQ(FaultOf(R"({"multipleOf": -3})"), "'multipleOf': -3 is not above 0, at #");
  EXPECT_EQ(FaultOf(R"({"allOf": [{"multipleOf": 97}, {"multipleOf": 103}]})"), "");
  const std::string together =
      "'multipleOf': 'allOf' and '$ref' bring together more than 10000 remainders, the limit, at #";
  EXPECT_EQ(FaultOf(R"({"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]})"), together);
  EXPECT_EQ(FaultOf(R"({"allOf": [{"multipleOf": 997}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"multipleOf": 991}}})"),
            together);
}

TEST(SchemaCheck, SchemasThatRequireThemselvesAreNamed) {
  for (const char* text :
       {R"({"$ref": "#"})", R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
        R"({"type": "array", "items": {"$ref": "#"}, "minItems": 1})",
        R"({"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1})",
        R"({"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#"}]}}})"}) {
    EXPECT_NE(FaultOf(text).find("requires itself without end"), std::string::npos) << text << ": " << FaultOf(text);
  }
  EXPECT_NE(FaultOf(R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "object",
      "properties": {"c": {"$ref": "#/$defs/b"}}, "required": ["c"]}}})")
                .find("at #/properties/a"),
            std::string::npos);
  for (const char* text :
       {R"({"type": "object", "properties": {"a": {"$ref": "#"}}})", R"({"type": "array", "items": {"$ref": "#"}})",
        R"({"type": "object", "properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["a"]})",
        R"({"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#"}}}, "required": ["a"]})",
        R"({"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
        R"({"type": "object", "required": ["b"]})", R"(true)", R"({"$ref": "#/$defs/none"})"}) {
    EXPECT_EQ(FaultOf(text), "") << text;
  }
}

TEST(SchemaCheck, AChainOfReferencesTakesNoTime) {
  SortedJson chain = {{"$ref", "#/$defs/d0"}};
  for (int i = 0; i < 12'000; ++i)
    chain["$defs"]["d" + std::to_string(i)] = {{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
  chain["$defs"]["d12000"] = {{"type", "null"}};
  const auto schema = ParseSchema(chain.dump());
  ASSERT_TRUE(schema.ok()) << schema.status().message();
  DeepCalls calls(1, kCompileStackBytes);  // recursion as deep as the chain
  const auto check = [&] { EXPECT_TRUE(CheckSchema(*schema).ok()); };
  EXPECT_EQ(*calls.Run(check, {.timeout_ms = 600'000}), DeepCalls::End::kDone);
}

}  // namespace
}  // namespace tactus::language
