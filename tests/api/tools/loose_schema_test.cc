// Schemas of non-strict tools: the removed keywords, and that the grammar library accepts the result.
#include "api/tools/loose_schema.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "api/tools/tool_rule.h"
#include "base/thread_cpu.h"
#include "language/grammar/grammar_engine.h"
#include "language/grammar/needs_llguidance.h"
#include "language/grammar/small_vocabulary.h"

#include "time_limit.h"

namespace tactus::api {
namespace {

std::string Property(const std::string& schema, Looseness looseness = Looseness::kReadable) {
  const std::string whole =
      R"j({"type":"object","properties":{"p":)j" + schema + R"j(},"$defs":{"D":{"type":"string"}}})j";
  return Json::parse(LooseSchema(whole, looseness))["properties"]["p"].dump();
}

TEST(LooseSchema, LeavesOutUnsupportedKeywords) {
  for (const auto& [given, left] : std::vector<std::pair<const char*, const char*>>{
           {R"j({"type":"string","pattern":"^(?!x)"})j", R"j({"type":"string"})j"},
           {R"j({"pattern":"(?<=a)b"})j", "{}"},
           {R"j({"pattern":"a\\b"})j", "{}"},
           {R"j({"pattern":"(a)\\1"})j", "{}"},
           {R"j({"pattern":"a^b"})j", "{}"},
           {R"j({"pattern":"^[$^(?=]+\\$$"})j", R"j({"pattern":"^[$^(?=]+\\$$"})j"},
           {R"j({"type":"float","description":"d"})j", R"j({"description":"d"})j"},
           {R"j({"type":["string","any"]})j", "{}"},
           {R"j({"type":["string","null"]})j", R"j({"type":["string","null"]})j"},
           {R"j({"type":"dict","properties":{"a":{"type":"int"}}})j", R"j({"properties":{"a":{}}})j"},
           {R"j({"$ref":"https://example.org/s.json"})j", "{}"},
           {R"j({"$ref":"#/$defs/None"})j", "{}"},
           {R"j({"$ref":"#/$defs/D"})j", R"j({"$ref":"#/$defs/D"})j"},
           {R"j({"required":true,"minimum":"1","exclusiveMinimum":true,"minLength":-1,"multipleOf":0,"enum":[]})j",
            "{}"},
           {R"j({"items":[{"type":"string"}],"properties":[],"anyOf":[],"oneOf":{},"allOf":[5]})j", "{}"},
           {R"j({"items":{"type":"str"},"anyOf":[{"type":"list"},{"type":"null"}]})j",
            R"j({"items":{},"anyOf":[{},{"type":"null"}]})j"},
           {R"j({"patternProperties":{"^(?=x)":{},"^x":{"type":"tuple"}}})j", R"j({"patternProperties":{"^x":{}}})j"},
           {R"j({"$schema":"http://json-schema.org/draft-03/schema#","$id":"x"})j", "{}"},
           {"5", "{}"},
           {"true", "true"}})
    EXPECT_EQ(Property(given), left) << given;
}

// Each of many references needs a lookup among all definitions.
TEST(LooseSchema, TimeIsLinearInTheText) {
  std::string text = R"({"type":"object","properties":{"p":{"$ref":"#/$defs/0"}},"$defs":{)";
  for (int i = 0; i < 16'000; ++i)
    text += std::string(i > 0 ? "," : "") + '"' + std::to_string(i) + R"(":{"$ref":"#/$defs/)" +
            std::to_string(15'999 - i) + "\"}";
  const int64_t begin_ns = ThreadCpuNs();
  EXPECT_GT(LooseSchema(text + "}}", Looseness::kReadable).size(), text.size() - 100);
  EXPECT_LT(ThreadCpuNs() - begin_ns, int64_t{700'000'000} * test::kLimitFactor);
}

TEST(LooseSchema, LeavesOutMoreStepByStep) {
  const char* const given = R"j({"type":"string","pattern":"x","format":"date","minLength":1,"not":{"const":"a"}})j";
  EXPECT_EQ(Property(given), given);
  EXPECT_EQ(Property(given, Looseness::kShape), R"j({"type":"string"})j");
  EXPECT_EQ(Property(given, Looseness::kNames), "{}");
  EXPECT_EQ(LooseSchema(R"j({"type":"object","properties":{"b":{"type":"string"},"a":{}},"required":["a"],"x":1})j",
                        Looseness::kNames),
            R"j({"type":"object","properties":{"b":{},"a":{}},"required":["a"]})j");
  EXPECT_EQ(LooseSchema(R"j({"type":"object","properties":[],"required":true})j", Looseness::kNames),
            R"j({"type":"object"})j");
}

TEST(LooseSchema, ResultIsAcceptedByTheGrammarLibrary) {
  TACTUS_NEEDS_LLGUIDANCE();
  auto engine = language::GrammarEngine::Create(language::SmallVocabulary());
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  for (const char* schema : {R"j({"type":"string","pattern":"^(?!x)"})j",
                             R"j({"type":"string","pattern":"(?i)^a(?=b)"})j",
                             R"j({"type":"string","pattern":"\\bword\\b"})j",
                             R"j({"type":"string","pattern":"^(a)\\1$"})j",
                             R"j({"type":"string","pattern":"(unclosed"})j",
                             R"j({"type":"string","pattern":5})j",
                             R"j({"type":"float"})j",
                             R"j({"type":"dict"})j",
                             R"j({"type":"dict","properties":{"x":{"type":"float"}}})j",
                             R"j({"type":"any"})j",
                             R"j({"type":"list","items":{"type":"str"}})j",
                             R"j({"type":["str","None"]})j",
                             R"j({"type":5})j",
                             R"j({"type":[]})j",
                             R"j({"$ref":"https://example.org/schema.json"})j",
                             R"j({"$ref":"other.json#/a"})j",
                             R"j({"$ref":"#/$defs/Missing"})j",
                             R"j({"$ref":"#anchor"})j",
                             R"j({"$ref":5})j",
                             R"j({"type":"string","format":"made-up"})j",
                             R"j({"type":"integer","minimum":5,"maximum":3})j",
                             R"j({"type":"integer","exclusiveMinimum":true,"minimum":0})j",
                             R"j({"type":"number","multipleOf":0})j",
                             R"j({"type":"string","minLength":"3"})j",
                             R"j({"type":"string","minLength":-3})j",
                             R"j({"type":"string","minLength":5,"maxLength":2})j",
                             R"j({"enum":[]})j",
                             R"j({"enum":"a"})j",
                             R"j({"type":"string","enum":[1,2]})j",
                             R"j({"oneOf":[{"type":"string"},{"type":"string","maxLength":3}]})j",
                             R"j({"anyOf":[]})j",
                             R"j({"allOf":[{"type":"string"},{"type":"integer"}]})j",
                             R"j({"not":{}})j",
                             "false",
                             "5",
                             "null",
                             R"j({"items":[{"type":"string"},{"type":"integer"}]})j",
                             R"j({"type":"array","items":"string"})j",
                             R"j({"type":"object","properties":{"a":5}})j",
                             R"j({"type":"object","required":true})j",
                             R"j({"type":"object","required":"a"})j",
                             R"j({"type":"object","patternProperties":{"(?=a)":{},"^b":{}}})j",
                             R"j({"type":"object","minProperties":2,"properties":{"a":{}}})j",
                             R"j({"if":{"type":"string"},"then":{"minLength":1}})j",
                             R"j({"$schema":"http://json-schema.org/draft-03/schema#"})j",
                             R"j({"$id":"http://x/y","$ref":"#/$defs/D"})j",
                             R"j({"type":"string","contentEncoding":"base64"})j",
                             R"j({"x-guidance":{"no":"such"}})j"}) {
    const std::string whole = std::string(R"j({"type":"object","properties":{"p":)j") + schema +
                              R"j(},"required":["p"],"$defs":{"D":{"type":"string"}}})j";
    bool taken = (*engine)->Compile(LooseRule(whole)).ok();
    std::string last;
    for (const Looseness next : {Looseness::kReadable, Looseness::kShape, Looseness::kNames}) {
      if (taken) break;
      last = LooseSchema(whole, next);
      taken = (*engine)->Compile(LooseRule(last)).ok();
    }
    EXPECT_TRUE(taken) << schema << ": " << last;
  }
}

}  // namespace
}  // namespace tactus::api
