// Output rules from every field that can state one, and the errors with the named field.
#include "api/tools/output_rule.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "api/chat/conversation.h"
#include "api/request_parser.h"
#include "serve/fake_engine.h"

namespace tactus::api::output_rule_test {
namespace {

using Kind = OutputRule::Kind;

RequestLimits Limits() {
  RequestLimits limits;
  limits.model = "m";
  limits.max_model_len = 4096;
  limits.vocab_size = 512;
  return limits;
}

Result<ParsedRequest> Chat(const std::string& fields) {
  return ParseChatRequest(R"({"messages":[{"role":"user","content":"c"}],)" + fields + "}", Limits());
}

TEST(OutputRule, EveryFieldGivesItsRule) {
  struct Case {
    const char* fields;
    OutputRule rule;
    const char* param;
  };
  for (
      const Case& c : {
          Case{R"("response_format":{"type":"text"})", {}, ""},
          Case{R"("response_format":null,"guided_json":null,"structured_outputs":null)", {}, ""},
          Case{R"("response_format":{"type":"json_object"})", {Kind::kJsonObject, ""}, "response_format"},
          Case{R"("response_format":{"type":"json_object","schema":{}})",
               {Kind::kJsonObject, ""},
               "response_format.schema"},
          Case{R"("response_format":{"type":"json_object","schema":"{}"})",
               {Kind::kJsonObject, ""},
               "response_format.schema"},
          Case{R"("response_format":{"type":"json_object","schema":true})",
               {Kind::kJsonObject, ""},
               "response_format.schema"},
          Case{R"("response_format":{"type":"json_object","schema":{"required":["a"]}})",
               {Kind::kJsonSchema, R"({"required":["a"],"type":"object"})"},
               "response_format.schema"},
          Case{R"("response_format":{"type":"json_object","schema":{"anyOf":[{"type":"object"}]}})",
               {Kind::kJsonSchema, R"({"anyOf":[{"type":"object"}],"type":"object"})"},
               "response_format.schema"},
          Case{R"("response_format":{"type":"json_object","schema":{"$ref":"#/$defs/a","$defs":{"a":{}}}})",
               {Kind::kJsonSchema, R"({"$defs":{"a":{}},"allOf":[{"$ref":"#/$defs/a"}],"type":"object"})"},
               "response_format.schema"},
          Case{R"("response_format":{"type":"json_object","schema":{"enum":[{"a":1}, 2]}})",
               {Kind::kJsonSchema, R"({"enum":[{"a":1},2]})"},
               "response_format.schema"},
          Case{
              R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object","b":1,"a":2}}})",
              {Kind::kJsonSchema, R"({"type":"object","b":1,"a":2})"},
              "response_format.json_schema.schema"},
          Case{R"("guided_json":{"type":"integer"})", {Kind::kJsonSchema, R"({"type":"integer"})"}, "guided_json"},
          Case{R"("guided_json":"{\"type\": \"integer\"}")",
               {Kind::kJsonSchema, R"({"type":"integer"})"},
               "guided_json"},
          Case{R"("guided_regex":"[a-z]+")", {Kind::kRegex, "[a-z]+"}, "guided_regex"},
          Case{R"("guided_choice":["a\"b","c\n"])",
               {Kind::kLark, "start: CHOICE\nCHOICE: \"a\\\"b\" | \"c\\n\""},
               "guided_choice"},
          Case{R"("guided_grammar":"start: \"x\"")", {Kind::kLark, R"(start: "x")"}, "guided_grammar"},
          Case{R"("structured_outputs":{})", {}, ""},
          Case{R"("structured_outputs":{"json":{}})", {Kind::kJsonSchema, "{}"}, "structured_outputs.json"},
          Case{R"("structured_outputs":{"regex":"a"})", {Kind::kRegex, "a"}, "structured_outputs.regex"},
          Case{R"("structured_outputs":{"choice":["a"]})",
               {Kind::kLark, "start: CHOICE\nCHOICE: \"a\""},
               "structured_outputs.choice"},
          Case{R"("structured_outputs":{"grammar":"start: \"a\""})",
               {Kind::kLark, R"(start: "a")"},
               "structured_outputs.grammar"},
          Case{R"("structured_outputs":{"json_object":true})",
               {Kind::kJsonObject, ""},
               "structured_outputs.json_object"},
      }) {
    const auto chat = Chat(c.fields);
    ASSERT_TRUE(chat.ok()) << c.fields << chat.status().ToString();
    EXPECT_EQ(static_cast<int>(chat->base.output.kind), static_cast<int>(c.rule.kind)) << c.fields;
    EXPECT_EQ(chat->base.output.text, c.rule.text) << c.fields;
    EXPECT_EQ(chat->output_param, c.param) << c.fields;
    const auto completion = ParseCompletionRequest(R"({"prompt":"p",)" + std::string(c.fields) + "}", Limits());
    ASSERT_TRUE(completion.ok()) << c.fields;
    EXPECT_TRUE(completion->base.output == chat->base.output) << c.fields;
  }
}

TEST(OutputRule, InvalidRulesAreRefusedByName) {
  struct Case {
    std::string fields;
    const char* message;
    const char* param;
  };
  for (const Case& c : {
           Case{R"("response_format":"json")",
                R"(response_format: expected an object with a type, got a string ("json"))", "response_format"},
           Case{R"("response_format":{})", R"(response_format.type: give "text", "json_object" or "json_schema")",
                "response_format.type"},
           Case{R"("response_format":{"type":"xml"})",
                R"(response_format.type: "xml" is none of "text", "json_object", "json_schema")",
                "response_format.type"},
           Case{R"("response_format":{"type":"json_schema"})",
                "response_format.json_schema: expected an object with a name and a schema",
                "response_format.json_schema"},
           Case{R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})",
                "response_format.json_schema.schema: missing; give the JSON schema of the answer",
                "response_format.json_schema.schema"},
           Case{R"("response_format":{"type":"json_schema","json_schema":{"name":5,"schema":{}}})",
                "response_format.json_schema.name: expected a string, got a number (5)",
                "response_format.json_schema.name"},
           Case{R"("response_format":{"type":"json_schema","json_schema":{"schema":[1]}})",
                "response_format.json_schema.schema: expected a JSON schema (an object), got a list (a list)",
                "response_format.json_schema.schema"},
           Case{R"("guided_json":5)", "guided_json: expected a JSON schema (an object), got a number (5)",
                "guided_json"},
           Case{R"("guided_choice":[])", "guided_choice: expected a list of strings, got a list (a list)",
                "guided_choice"},
           Case{R"("guided_choice":["a",""])", "guided_choice[1]: expected a string that is not empty, got \"\"",
                "guided_choice"},
           Case{R"("guided_regex":"")", "guided_regex: empty; leave it out", "guided_regex"},
           Case{R"("guided_grammar":"root ::= \"a\"")",
                "guided_grammar: this is GBNF ('::='); give the grammar in Lark's notation, from the rule 'start'",
                "guided_grammar"},
           Case{R"("guided_regex":"a","structured_outputs":{"choice":["a"]})",
                "guided_regex: another field already states what the answer must be; give one of them", "guided_regex"},
           Case{R"("structured_outputs":{"structural_tag":"x"})",
                "structured_outputs.structural_tag: not supported yet; leave it out",
                "structured_outputs.structural_tag"},
           Case{R"("structured_outputs":[1])",
                "structured_outputs: expected an object of json, regex, choice, grammar or json_object, got a list (a "
                "list)",
                "structured_outputs"},
           Case{R"("guided_regex":")" + std::string(kMaxRuleBytes + 1, 'a') + "\"",
                "guided_regex: 262145 bytes are more than 262144, the limit", "guided_regex"},
       }) {
    const auto chat = Chat(c.fields);
    EXPECT_EQ(chat.status().message(), c.message);
    EXPECT_EQ(chat.status().param(), c.param);
  }
}

TEST(OutputRule, EveryRequestHasTheGrammarAndItsErrorNamesTheField) {
  FakeEngine engine;
  RequestLimits limits = LimitsOf(engine, 100);
  auto parsed = ParseCompletionRequest(R"({"prompt":["a","b"],"guided_json":{"type":"object"}})", limits);
  ASSERT_TRUE(parsed.ok());
  const auto prepared = PrepareConversation(*parsed, engine, limits);
  ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
  ASSERT_EQ(prepared->requests.size(), 2u);
  for (const Request& request : prepared->requests) EXPECT_NE(request.grammar, nullptr);

  parsed = ParseCompletionRequest(R"({"prompt":"a","structured_outputs":{"json":{"impossible":1}}})", limits);
  ASSERT_TRUE(parsed.ok());
  const auto refused = PrepareConversation(*parsed, engine, limits);
  EXPECT_EQ(refused.status().message(), "structured_outputs.json: 'impossible' is not supported");
  EXPECT_EQ(refused.status().param(), "structured_outputs.json");
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tactus::api::output_rule_test
