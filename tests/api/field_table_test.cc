// The schemas of /openapi.json match the parsers: no missing and no extra row.
#include "api/field_table.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include <set>

#include "api/fields/fields.h"

namespace tactus::api::field_table_test {
namespace {

constexpr std::string_view kPaths[] = {"/v1/completions", "/v1/chat/completions",      "/v1/responses", "/v1/messages",
                                       "/tokenize",       "/v1/messages/count_tokens", "/detokenize"};

RequestLimits Limits() {
  RequestLimits limits;
  limits.model = "m";
  limits.max_model_len = 1000;
  limits.vocab_size = 100;
  limits.max_choices = 7;
  return limits;
}

TEST(FieldTable, HasOneRowForEveryFieldThatParsersRead) {
  std::set<const FieldRow*> asked_for;
  for (const std::string_view path : kPaths) {
    const auto all = AskedOf(path, Limits());
    EXPECT_FALSE(all.empty()) << path;
    for (const auto& asked : all) {
      const FieldRow* row = FindField(path, asked.name);
      ASSERT_NE(row, nullptr) << path << " reads " << asked.name << ", which the table does not have";
      asked_for.insert(row);
      if (asked.kind == FieldRecording::Kind::kAny) {
        EXPECT_FALSE(row->schema.empty()) << path << ": " << asked.name << " is no plain value; its row needs a schema";
      }
    }
  }
  for (const FieldRow& row : FieldTable())
    EXPECT_TRUE(asked_for.contains(&row)) << row.name << " " << row.path << " is read by no parser";
}

TEST(FieldTable, RangesAreThoseOfTheParsers) {
  const Json chat = BodySchema("/v1/chat/completions", Limits())["properties"];
  EXPECT_EQ(chat["n"]["maximum"], 7);
  EXPECT_EQ(chat["n"]["type"], Json::array({"integer", "null"}));
  EXPECT_EQ(chat["top_p"]["exclusiveMinimum"], 0);
  EXPECT_EQ(chat["slo"]["properties"]["ttft_ms"]["exclusiveMinimum"], 0);
  EXPECT_EQ(chat["stream_options"]["properties"]["include_usage"]["type"], Json::array({"boolean", "null"}));
  EXPECT_FALSE(chat.contains("echo"));    // refused
  EXPECT_FALSE(chat.contains("prompt"));  // belongs to another route
  const Json responses = BodySchema("/v1/responses", Limits());
  EXPECT_EQ(responses["required"], Json::array({"input"}));
  EXPECT_TRUE(responses["properties"].contains("top_k"));
  EXPECT_FALSE(responses["properties"].contains("messages"));
  EXPECT_FALSE(responses["properties"].contains("max_tokens"));
  EXPECT_EQ(BodySchema("/v1/messages", Limits())["required"], Json::array({"messages", "max_tokens"}));
  EXPECT_EQ(BodySchema("/v1/messages/count_tokens", Limits())["required"], Json::array({"messages"}));
}

TEST(Fields, AnEmptyValueOfAnUnbuiltFieldIsAccepted) {
  for (const auto& [text, refused] : {std::pair(R"({"a": []})", false),
                                      {R"({"a": {}})", false},
                                      {R"({"a": null})", false},
                                      {R"({})", false},
                                      {R"({"a": [1]})", true},
                                      {R"({"a": ""})", false},
                                      {R"({"a": "x"})", true},
                                      {R"({"a": 0})", true}}) {
    const Json body = Json::parse(text);
    Fields fields(body);
    fields.Refuse("a");
    EXPECT_EQ(!fields.ok(), refused) << text;
  }
}

TEST(FieldRecording, RecordsTheFieldsReadOnItsThread) {
  const Json body = Json::parse(R"({"a": 1, "b": {"c": true}})");
  Fields before(body);
  (void)before.Boolean("never");
  FieldRecording recording;
  Fields fields(body);
  (void)fields.Find("a");
  (void)fields.Integer("a", -2, 5);
  (void)fields.Has("elsewhere");
  fields.RefuseTrue("refused");
  Fields inner(body["b"], "b.");
  (void)inner.Boolean("c");
  std::vector<std::pair<std::string, FieldRecording::Kind>> names;
  for (const auto& asked : recording.asked()) names.emplace_back(asked.name, asked.kind);
  using Kind = FieldRecording::Kind;
  EXPECT_EQ(names, (decltype(names){{"a", Kind::kInteger}, {"refused", Kind::kRefused}, {"b.c", Kind::kBoolean}}));
  EXPECT_EQ(recording.asked()[0].least, -2);
  EXPECT_EQ(recording.asked()[0].most, 5);
}

}  // namespace
}  // namespace tactus::api::field_table_test
