#include "language/grammar/regex_text.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "language/grammar/schema_text.h"

namespace tactus::language {
namespace {

TEST(RegexText, ClassesBecomeAsciiSets) {
  EXPECT_EQ(AsciiClasses(R"(\d{4}-\d\w)"), "[0-9]{4}-[0-9][0-9A-Za-z_]");
  EXPECT_EQ(AsciiClasses(R"(\D\W)"), "[^0-9][^0-9A-Za-z_]");
  EXPECT_EQ(AsciiClasses(R"([\d.\s]+)"), R"([0-9. \t\n\r\x0b\x0c]+)");
}

TEST(RegexText, AHyphenBesideAClassMakesNoRange) {
  EXPECT_EQ(AsciiClasses(R"([\d\s-()])"), R"([0-9 \t\n\r\x0b\x0c\-()])");
  EXPECT_EQ(AsciiClasses(R"([+\d-.])"), R"([+0-9\-.])");
  EXPECT_EQ(AsciiClasses(R"([\w-\d])"), R"([0-9A-Za-z_\-0-9])");
  EXPECT_EQ(AsciiClasses(R"([\w-])"), "[0-9A-Za-z_-]");
  EXPECT_EQ(AsciiClasses(R"([\w--\d])"), "[0-9A-Za-z_--0-9]");  // a difference of sets
  EXPECT_EQ(AsciiClasses(R"([-\d][^-\d][a-z-\d])"), "[-0-9][^-0-9][a-z-0-9]");
  EXPECT_EQ(AsciiClasses(R"([a-\d])"), R"([a-\d])");  // the library refuses it
  EXPECT_EQ(AsciiClasses(R"(\d-[a])"), "[0-9]-[a]");
}

TEST(RegexText, ComplementsKeepExcludingWhiteSpace) {
  for (const char* same : {R"(\S+)", R"([^\s]+)", R"([^a[\s]])", R"([\S])"}) EXPECT_EQ(AsciiClasses(same), same);
  EXPECT_EQ(AsciiClasses(R"([^\s\d][\s])"), R"([^\s0-9][ \t\n\r\x0b\x0c])");
}

TEST(RegexText, OtherTextIsUnchanged) {
  for (const char* same : {R"(\\d)", R"(a\.b\[d\])", R"([^\D])", R"([]\]x])", "", R"(\)", R"([a-z&&[^b]]\n)"}) {
    EXPECT_EQ(AsciiClasses(same), same);
  }
  // The end of a set: a first ']' is a member, and sets may be nested.
  EXPECT_EQ(AsciiClasses(R"([]\d]\d)"), "[]0-9][0-9]");
  EXPECT_EQ(AsciiClasses(R"([^]\d]\d)"), "[^]0-9][0-9]");
  EXPECT_EQ(AsciiClasses(R"([a[\d]b\d]\d)"), "[a[0-9]b0-9][0-9]");
  EXPECT_EQ(AsciiClasses(R"([a^]\d)"), "[a^][0-9]");
  EXPECT_EQ(AsciiClasses(R"([^^]\d)"), "[^^][0-9]");
}

TEST(RegexText, PatternsOfSchemasBecomeAscii) {
  const auto schema = ParseSchema(R"({"properties": {"pattern": {"pattern": "\\d"}}, "enum": [{"pattern": "\\d"}]})");
  ASSERT_TRUE(schema.ok());
  const auto text = Json::parse(SchemaText(*schema));
  EXPECT_EQ(text["properties"]["pattern"]["pattern"], "[0-9]");
  EXPECT_EQ(text["enum"][0]["pattern"], "\\d");
  // Properties may be named like keywords.
  const auto named = ParseSchema(R"({"properties": {"default": {"pattern": "\\d"}, "required": {"items": {"pattern":
      "\\d"}}}, "patternProperties": {"^\\d$": {"pattern": "\\d"}, "^\\w": {}, "^[0-9A-Za-z_]": {}}})");
  ASSERT_TRUE(named.ok());
  EXPECT_TRUE(SchemaText(*named).starts_with(
      R"({"properties":{"default":{"pattern":"[0-9]"},"required":{"items":{"pattern":"[0-9]"}}},)"
      R"("patternProperties":{"^[0-9]$":{"pattern":"[0-9]"},"^\\w":{},"^[0-9A-Za-z_]":{}},)"))
      << SchemaText(*named);
}

}  // namespace
}  // namespace tactus::language
