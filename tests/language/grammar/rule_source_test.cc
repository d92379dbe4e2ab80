#include "language/grammar/rule_source.h"

#include <gtest/gtest.h>

#include <string>

namespace tactus::language {
namespace {

using Kind = OutputRule::Kind;

std::string FaultOfRule(Kind kind, std::string text) {
  const auto source = RuleSource::Of({kind, std::move(text)});
  if (!source.ok()) return source.status().message();
  return (*source)->Check().message();
}

// A schema is checked in every place.
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
            "lark: %json: 9 patterns and formats apply to one string, through 'allOf' and '$ref'; the limit is 8");
  EXPECT_EQ(FaultOfRule(Kind::kLark, R"(start: %json {"type": "integer", "multipleOf": 97})"), "");
}

TEST(RuleSource, IntersectionsAreCountedInEachDefinition) {
  EXPECT_EQ(MostIntersected("start: A\nA: /a/"), 0);
  EXPECT_EQ(MostIntersected("start: A\nA: /a/ & /b/"), 2);
  EXPECT_EQ(MostIntersected("A: /a/ &\n /b/ & /c/\nB: /d/ & /e/"), 3);
  EXPECT_EQ(MostIntersected("A: \"&&&\" | /[&&]&\\/&/ // & & &\nB: /a/ & /b/"), 2);
  EXPECT_EQ(MostIntersected("A: /a/ & ~/b/ & (/c/ & /d/)"), 4);
  EXPECT_EQ(MostIntersected("A: \"open & & &"), 0);
  // Definitions whose first character is not part of their name, and text that only looks like a definition.
  EXPECT_EQ(MostIntersected("a: /a/ & /b/\n?b: /c/ & /d/\n  !c: /e/ & /f/\n _D.2: /e/ & /f/\ne[lazy]: /g/ & /h/"), 2);
  EXPECT_EQ(
      MostIntersected("A: /a/ & /b/\n# B:\n & /c/\n// C:\n & /d/ & %json {\"x\": 1,\ny: 2} & <a\"b> & /\nD: /\n& x"),
      8);
  // Including the definitions that it names.
  EXPECT_EQ(MostIntersected("A: B & C\nB: /a/ & /b/ & /c/\nC: /d/ & /e/"), 5);
  EXPECT_EQ(MostIntersected("A: B & /x/\nB: C\nC: D | E\nD: /a/ & /b/ & /c/\nE: /d/ & /e/"), 4);
  EXPECT_EQ(MostIntersected("A: B C\nB: /a/ & /b/\nC: /d/ & /e/"), 2) << "in sequence";
  EXPECT_EQ(MostIntersected("A: B & B\nB: A & A"), 4) << "a cycle";
  std::string chain = "A0: /a/ & /b/\n";
  for (int i = 1; i < 40'000; ++i) chain += "A" + std::to_string(i) + ": A" + std::to_string(i - 1) + "\n";
  EXPECT_EQ(MostIntersected(chain), 2);
  std::string many = "start: A\nA: /.*a.*/";
  for (char c = 'b'; c <= 'i'; ++c) many += std::string(" & /.*") + c + ".*/";
  EXPECT_EQ(FaultOfRule(Kind::kLark, many),
            "lark: 9 expressions are intersected ('&') in one definition and those that it names; the limit is 8; "
            "intersect fewer");
}

}  // namespace
}  // namespace tactus::language
