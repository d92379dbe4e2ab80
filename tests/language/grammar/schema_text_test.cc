#include "language/grammar/schema_text.h"
#include "base/json.h"

#include <gtest/gtest.h>

namespace tactus::language {
namespace {

Json Parsed(std::string_view text) {
  auto schema = ParseSchema(text);
  EXPECT_TRUE(schema.ok()) << schema.status().message();
  return schema.ok() ? *schema : Json();
}

TEST(SchemaText, KeepsTheOrderOfKeysAndSetsTheSpacing) {
  const std::string text = SchemaText(Parsed(R"({"z": 1, "x-guidance": {"lenient": true}, "a": 2})"));
  EXPECT_EQ(text,
            R"({"z":1,"x-guidance":{"whitespace_flexible":false,"item_separator":", ","key_separator":": "},"a":2})");
  EXPECT_EQ(SchemaText(Parsed("true")),
            R"({"x-guidance":{"whitespace_flexible":false,"item_separator":", ","key_separator":": "}})");
  EXPECT_EQ(ParseSchema("false").status().message(), "the schema 'false' allows no answer");
  EXPECT_FALSE(ParseSchema("1").ok());
  EXPECT_FALSE(ParseSchema(R"({"a": 1, "a": 2})").ok());
}

TEST(SchemaText, ACountMayHaveADecimalPoint) {
  const auto schema =
      ParseSchema(R"({"minItems": 2.0, "properties": {"maxLength": {"maxLength": 1e2, "minimum": 2.0}}})");
  ASSERT_TRUE(schema.ok());
  const std::string text = SchemaText(*schema);
  EXPECT_NE(text.find(R"("minItems":2,)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"({"maxLength":100,"minimum":2.0})"), std::string::npos) << text;
}

TEST(SchemaText, FindsKeywordsButNoPropertyNames) {
  const auto schema = Parsed(R"({"properties": {"not": {"type": "string"}, "b": {"enum": [{"not": 1}]},
                                 "c~/": {"anyOf": [{}, {"not": {}}]}}, "$defs": {"if": {"items": {"if": {}}}}})");
  EXPECT_EQ(FindKeyword(schema, "not"), "#/properties/c~0~1/anyOf/1");
  EXPECT_EQ(FindKeyword(schema, "if"), "#/$defs/if/items");
  EXPECT_EQ(FindKeyword(schema, "properties"), "#");
  EXPECT_EQ(FindKeyword(schema, "then"), "");
  const Json value = "string";
  EXPECT_EQ(FindKeyword(schema, "type", &value), "#/properties/not");
}

TEST(SchemaText, CountsPatternsOfOneString) {
  EXPECT_EQ(MostPatterns(Parsed("{}")), 0);
  EXPECT_EQ(MostPatterns(Parsed(R"({"pattern": "a", "format": "date"})")), 2);
  EXPECT_EQ(MostPatterns(Parsed(R"({"properties": {"a": {"pattern": "a"}, "b": {"pattern": "b"}}})")), 1);
  EXPECT_EQ(MostPatterns(Parsed(R"({"items": {"allOf": [{"pattern": "a"}, {"pattern": "b"}], "pattern": "c"}})")), 3);
  EXPECT_EQ(MostPatterns(Parsed(R"({"anyOf": [{"pattern": "a"}, {"pattern": "b", "format": "date"}]})")), 2);
  EXPECT_EQ(MostPatterns(Parsed(R"({"$ref": "#/$defs/a", "pattern": "x", "$defs": {"a": {"$ref": "#/$defs/b",
                                    "pattern": "y"}, "b": {"pattern": "z"}}})")),
            3);
  EXPECT_EQ(MostPatterns(Parsed(R"({"pattern": "a", "allOf": [{"$ref": "#"}]})")), 1);  // a cycle
  EXPECT_EQ(MostPatterns(Parsed(R"({"pattern": "a", "$ref": "#/nowhere/b"})")), 1);
  EXPECT_EQ(MostPatterns(Parsed(R"({"pattern": "a", "$ref": "https://example.com"})")), 1);
}

// allOf and $ref also combine below properties and items.
TEST(SchemaText, CountsPatternsOfOnePropertyOrItem) {
  EXPECT_EQ(MostPatterns(Parsed(R"({"allOf": [{"properties": {"a": {"pattern": "x"}, "b": {"pattern": "x"}}},
                                    {"properties": {"a": {"pattern": "y"}}}]})")),
            2);
  EXPECT_EQ(MostPatterns(Parsed(R"({"$ref": "#/$defs/d", "properties": {"a": {"items": {"pattern": "x"}}},
                                    "$defs": {"d": {"properties": {"a": {"items": {"pattern": "y"}}}}}})")),
            2);
  EXPECT_EQ(MostPatterns(Parsed(R"({"additionalProperties": {"pattern": "x"}, "allOf": [
                                    {"properties": {"a": {"pattern": "y"}}}]})")),
            2);
  EXPECT_EQ(MostPatterns(Parsed(R"({"prefixItems": [{"pattern": "x"}], "allOf": [{"items": {"pattern": "y"}}]})")), 2);
  // One alternative at a time.
  EXPECT_EQ(MostPatterns(Parsed(R"({"properties": {"a": {"pattern": "x"}}, "anyOf": [
                                    {"properties": {"a": {"pattern": "y"}}}, {"properties": {"a": {"pattern": "z"}}}]})")),
            2);
  EXPECT_EQ(MostPatterns(Parsed(R"({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"},
                                    "b": {"pattern": "x"}}}]})")),
            1);
}

}  // namespace
}  // namespace tactus::language
