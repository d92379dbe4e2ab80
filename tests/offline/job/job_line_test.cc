// Valid lines of a batch file, and the errors of invalid ones.
#include "offline/job/job_line.h"
#include "base/json.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace tactus::offline {
namespace {

using json = SortedJson;

json Good() {
  return {
      {"custom_id", "x"}, {"method", "POST"}, {"url", "/v1/chat/completions"}, {"body", {{"messages", json::array()}}}};
}
std::string Fault(const std::string& text, JobLine* line) {
  return ParseLine(text, 7, line).message();
}
std::string Fault(const json& object) {
  JobLine line;
  return Fault(object.dump(), &line);
}
json With(const char* name, json value) {
  json object = Good();
  object[name] = std::move(value);
  return object;
}
json Without(const char* name) {
  json object = Good();
  object.erase(name);
  return object;
}

TEST(JobLine, ALineHasItsIdItsApiAndItsBody) {
  JobLine line;
  ASSERT_EQ(Fault(Good().dump(), &line), "");
  EXPECT_EQ(line.custom_id, "x");
  EXPECT_EQ(line.api, &api::kChatApi);
  EXPECT_EQ(line.body->dump(), R"({"messages":[]})");
  ASSERT_EQ(Fault(With("url", "/v1/completions").dump() + "\r", &line), "");
  EXPECT_EQ(line.api, &api::kCompletionsApi);
}

TEST(JobLine, LargeIntegersInTheArgumentsOfCallsKeepTheirDigits) {
  JobLine line;
  const std::string calls = R"("messages":[{"tool_calls":[{"function":{"arguments":{"a":[)";
  ASSERT_EQ(Fault(R"({"custom_id":"x","method":"POST","url":"/v1/chat/completions",
                      "body":{)" +
                      calls + "99999999999999999998,1]}}}]}]}}",
                  &line),
            "");
  EXPECT_EQ(line.body->dump(), "{" + calls + R"("99999999999999999998",1]}}}]}]})");
}

TEST(JobLine, AUrlNamesARouteWithOrWithoutItsVersion) {
  for (const char* url : {"/v1/responses", "/responses", "/v1/responses/"})
    EXPECT_EQ(ApiOfUrl(url), &api::kResponsesApi);
  EXPECT_EQ(ApiOfUrl("/chat/completions"), &api::kChatApi);
  EXPECT_EQ(ApiOfUrl("/completions/"), &api::kCompletionsApi);
  for (const char* url : {"", "/", "/v1", "/v1/", "/v2/responses", "v1/responses", "/v1/v1/responses", "/v1/messages"})
    EXPECT_EQ(ApiOfUrl(url), nullptr) << url;
}

TEST(JobLine, ALineMayBeginWithAByteOrderMark) {
  JobLine line;
  EXPECT_TRUE(ParseLine("\xef\xbb\xbf" + Good().dump(), 1, &line).ok());
  EXPECT_TRUE(ParseLine("\xef\xbb\xbf" + Good().dump(), 2, &line).ok()) << "as in concatenated files";
}

TEST(JobLine, ASchemaNumberThatNoDoubleHoldsIsNamed) {
  JobLine line;
  std::string text = Good().dump();
  text.replace(text.find(R"("messages":[])"), 13,
               R"("messages":[],"json_schema":{"const":123456789012345678901234567890})");
  EXPECT_NE(Fault(text, &line).find("123456789012345678901234567890"), std::string::npos);
}

TEST(JobLine, EveryFaultNamesItsFieldAndTheFix) {
  EXPECT_EQ(Fault(Without("custom_id")), "custom_id: missing; each line needs a unique one");
  EXPECT_EQ(Fault(With("custom_id", nullptr)), "custom_id: missing; each line needs a unique one");
  EXPECT_EQ(Fault(With("custom_id", "")), "custom_id: empty; each line needs a unique one");
  EXPECT_NE(Fault(With("custom_id", 5)).find("custom_id: expected a string, got a number (5)"), std::string::npos)
      << Fault(With("custom_id", 5));
  EXPECT_NE(Fault(With("custom_id", std::string(513, 'x'))).find("512"), std::string::npos);
  EXPECT_EQ(Fault(With("custom_id", std::string(512, 'x'))), "") << "the longest";
  EXPECT_EQ(Fault(Without("method")), "method: missing; expected \"POST\"");
  EXPECT_EQ(Fault(With("method", "GET")), "method: \"GET\" is not known; expected \"POST\"");
  EXPECT_EQ(Fault(Without("url")),
            "url: missing; expected \"/v1/chat/completions\", \"/v1/completions\" or \"/v1/responses\"");
  EXPECT_EQ(Fault(With("url", "/v1/embeddings")),
            "url: \"/v1/embeddings\" is not known; expected \"/v1/chat/completions\", \"/v1/completions\" or "
            "\"/v1/responses\"");
  EXPECT_EQ(Fault(Without("body")), "body: missing; pass the request as a JSON object");
  EXPECT_NE(Fault(With("body", json::array())).find("body: expected a JSON object"), std::string::npos)
      << Fault(With("body", json::array()));
  EXPECT_EQ(
      Fault(With("model", "m")),
      "\"model\": an unknown field; a line has custom_id, method, url and body; the request's fields are in body");
}

TEST(JobLine, ALineThatIsNotAnObjectIsRefused) {
  JobLine line;
  for (const char* blank : {"", " ", "\t\r"})
    EXPECT_EQ(Fault(blank, &line), "the line is empty; remove it, or write a request into it");
  EXPECT_EQ(Fault("[1]", &line), "a line must be a JSON object with custom_id, method, url and body, not a list");
  EXPECT_EQ(Fault("{\"custom_id\": ", &line).substr(0, 36), "invalid JSON at line 7, column 15: u");
  EXPECT_NE(Fault("{\"custom_id\": \"\xff\"}", &line).find("UTF-8"), std::string::npos)
      << Fault("{\"custom_id\": \"\xff\"}", &line);
  EXPECT_NE(Fault(R"({"custom_id":"a","custom_id":"b"})", &line).find("twice"), std::string::npos);
}

// An id also counts if its line has another fault, whose error names the id.
TEST(JobLine, TheIdIsReadAlsoIfALineHasAnotherFault) {
  JobLine line;
  for (const char* name : {"method", "url", "body"}) {
    EXPECT_NE(Fault(Without(name).dump(), &line), "");
    EXPECT_EQ(line.custom_id, "x") << name;
  }
  EXPECT_NE(Fault("{", &line), "");
  EXPECT_FALSE(line.custom_id.has_value()) << "left from the previous line";
}

TEST(JobLine, ABodyMayBeAsDeepAsForAServer) {
  json deep = json::array();
  for (int i = 0; i < 62; ++i) deep = json::array({deep});
  EXPECT_EQ(Fault(With("body", {{"deep", deep}})), "") << "64 levels of a body";
  EXPECT_NE(Fault(With("body", {{"deep", json::array({deep})}})).find("nested deeper"), std::string::npos);
}

// For every damaged line the error is one line of JSON.
TEST(JobLine, DamagedLinesAreRefusedInOneLineOfJson) {
  Rng rng(11);
  const std::string good = With("custom_id", "a \"b\" \xC3\xA9").dump();
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (int64_t changes = rng.UniformInt(1, 4); changes > 0; --changes) {
      const auto at = static_cast<size_t>(rng.UniformInt(0, static_cast<int64_t>(text.size()) - 1));
      const int64_t kind = rng.UniformInt(0, 3);
      if (kind == 0) text[at] = static_cast<char>(rng.UniformInt(0, 255));
      if (kind == 1) text.erase(at, static_cast<size_t>(rng.UniformInt(1, 9)));
      if (kind == 2) text.insert(at, good.substr(static_cast<size_t>(rng.UniformInt(0, 40)), 9));
      if (kind == 3) text[at] = "{}[]\",:\\x0"[rng.UniformInt(0, 9)];
      if (text.empty()) text = "x";
    }
    JobLine line;
    const Status status = ParseLine(text, 1, &line);
    if (status.ok()) continue;
    ++refused;
    const std::string error = FailureText({"j", 1, line.custom_id}, status, false);
    ASSERT_EQ(error.find('\n'), error.size() - 1) << text;
    const json parsed = json::parse(error, nullptr, false);
    ASSERT_FALSE(parsed.is_discarded()) << text << "\n" << error;
    ASSERT_LT(parsed["error"]["message"].get<std::string>().size(), 1000u) << text;
  }
  EXPECT_GT(refused, 10000);
}

TEST(ResultText, AnAnswerHasOpenAisFormat) {
  const std::string text = AnswerText({"j", 3, "a\"b"}, R"({"id":1})");
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(json::parse(text), json::parse(R"({"id": "batch_req_j_3", "custom_id": "a\"b", "error": null,
      "response": {"status_code": 200, "request_id": "batch_req_j_3", "body": {"id": 1}}})"));
}

// Beside the body, which a client parses by its own types.
TEST(ResultText, IgnoredFieldsAreNamedInTheHeadersOfTheResponse) {
  const json line = json::parse(AnswerText({"j", 3, "a", "wi\"sh, slo.x"}, R"({"id":1})"));
  EXPECT_EQ(line["response"]["headers"], json({{"x-tactus-ignored", "wi\"sh, slo.x"}}));
  EXPECT_EQ(line["response"]["body"], json({{"id", 1}}));
}

TEST(ResultText, AFailureNamesItsLineAndHasTheServersError) {
  const ResultNames names{"j", 3, "a"};
  json line = json::parse(FailureText(names, InvalidArgument("n: 0 is too few", "n"), true));
  EXPECT_EQ(line["custom_id"], "a");
  EXPECT_EQ(line["response"]["status_code"], 400);
  EXPECT_EQ(line["response"]["body"]["error"]["param"], "n");
  EXPECT_EQ(
      line["error"],
      json::parse(R"({"code": "invalid_request", "message": "line 3: n: 0 is too few", "param": "n", "line": 3})"));
  line = json::parse(FailureText(names, Internal("boom"), true));
  EXPECT_EQ(line["response"]["status_code"], 500);
  EXPECT_EQ(line["error"]["code"], "server_error");
  line = json::parse(FailureText({"j", 4, {}}, InvalidArgument("broken"), false));
  EXPECT_TRUE(line["custom_id"].is_null() && line["response"].is_null() && line["error"]["param"].is_null());
  EXPECT_EQ(line["error"]["code"], "invalid_line");
}

}  // namespace
}  // namespace tactus::offline
