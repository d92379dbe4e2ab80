#include "grammar/rule_source.h"

#include <gtest/gtest.h>

#include <string>

namespace tactus::grammar {
namespace {

using Kind = OutputRule::Kind;

std::string FaultOfRule(Kind kind, std::string text) {
  const auto source = RuleSource::Of({kind, std::move(text)});
  if (!source.ok()) return source.status().message();
  return (*source)->Check().message();
}

// A schema is checked wherever it stands.
TEST(RuleSource, SchemasWithinGrammarsAreChecked) {
  const std::string schema = R"({"allOf": [{"type": "integer", "multipleOf": 9973}, {"multipleOf": 9967}]})";
  const std::string fault =
      "'multipleOf': 'allOf' and '$ref' bring together more than 10000 remainders, the limit, at #";
  EXPECT_EQ(FaultOfRule(Kind::kJsonSchema, schema), "json_schema: " + fault);
  for (const std::string& grammar :
       {"start: %json " + schema, "start: \"a\" b\nb: %json\n" + schema,
        "start: %lark {\nstart: %json " + schema + "\n}", "start: %json {\"type\": \"null\"} | %json " + schema}) {
    EXPECT_EQ(FaultOfRule(Kind::kLark, grammar), "lark: %json: " + fault) << grammar;
  }
  std::string patterns = R"({"type": "string", "allOf": [)";
  for (char c = 'a'; c < 'j'; ++c) patterns += std::string(c > 'a' ? "," : "") + R"({"pattern": ".*)" + c + R"(.*"})";
  EXPECT_EQ(FaultOfRule(Kind::kLark, "start: %json " + patterns + "]}"),
            "lark: %json: 9 patterns and formats bear on one string, through 'allOf' and '$ref'; the limit is 8");
  EXPECT_EQ(FaultOfRule(Kind::kLark, R"(start: %json {"type": "integer", "multipleOf": 97})"), "");
}

TEST(RuleSource, IntersectionsAreCountedInEachDefinition) {
  EXPECT_EQ(MostIntersected("start: A\nA: /a/"), 0);
  EXPECT_EQ(MostIntersected("start: A\nA: /a/ & /b/"), 2);
  EXPECT_EQ(MostIntersected("A: /a/ &\n /b/ & /c/\nB: /d/ & /e/"), 3);
  EXPECT_EQ(MostIntersected("A: \"&&&\" | /[&&]&\\/&/ // & & &\nB: /a/ & /b/"), 2);
  EXPECT_EQ(MostIntersected("A: /a/ & ~/b/ & (/c/ & /d/)"), 4);
  EXPECT_EQ(MostIntersected("A: \"open & & &"), 0);
  std::string many = "start: A\nA: /.*a.*/";
  for (char c = 'b'; c <= 'i'; ++c) many += std::string(" & /.*") + c + ".*/";
  EXPECT_EQ(FaultOfRule(Kind::kLark, many),
            "lark: 9 expressions are intersected ('&') in one definition; the limit is 8");
}

}  // namespace
}  // namespace tactus::grammar
