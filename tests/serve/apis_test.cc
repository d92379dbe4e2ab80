// Routes of the other APIs: answers, streams and errors in their formats, API keys as their clients send them, and the
// OpenAPI document of all routes.
#include <set>

#include "base/json.h"
#include "serve/routes.h"
#include "server_fixture.h"

namespace tactus {
namespace {

using json = SortedJson;

const json kResponse = {{"input", "hi"}, {"max_output_tokens", 3}};
const json kMessage = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 3}};

json With(json body, const json& extra) {
  body.update(extra);
  return body;
}

class ApisTest : public ServerTest {
 protected:
  json Ask(const std::string& path, const json& body, int expect = 200, http::Headers headers = {}) {
    const auto response = Post(path, body.dump(), std::move(headers));
    EXPECT_EQ(response.status, expect) << response.body;
    return json::parse(response.body, nullptr, false);
  }
};

TEST_F(ApisTest, ResponsesRouteAnswersInItsFormat) {
  StartServer();
  const json a = Ask("/v1/responses", With(kResponse, {{"metadata", {{"k", "v"}}}}));
  EXPECT_TRUE(a["id"].get<std::string>().starts_with("resp_"));
  EXPECT_EQ(a["status"], "incomplete");
  EXPECT_EQ(a["output"][0]["content"][0]["text"], "Hello wor");
  EXPECT_EQ(a["usage"]["input_tokens"], 5);
  EXPECT_EQ(a["usage"]["output_tokens"], 3);
  EXPECT_EQ(a["metadata"], json({{"k", "v"}}));
  EXPECT_EQ(a["max_output_tokens"], 3);
  const auto stream = Stream("/v1/responses", With(kResponse, {{"stream", true}}).dump());
  EXPECT_EQ(json::parse(stream->events.front())["type"], "response.created");
  const json last = json::parse(stream->events.back());
  EXPECT_EQ(last["type"], "response.incomplete");
  EXPECT_EQ(last["sequence_number"], stream->events.size() - 1);
  EXPECT_EQ(last["response"]["output"][0]["content"][0]["text"], "Hello wor");
}

TEST_F(ApisTest, IgnoredFieldsAreNamedInAHeader) {
  StartServer();
  const json chat = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 3}};
  for (const auto& [path, body] :
       {std::pair("/v1/chat/completions", chat), std::pair("/v1/responses", kResponse),
        std::pair("/v1/messages", kMessage), std::pair("/tokenize", json{{"prompt", "a"}})}) {
    const auto response = Post(path, With(body, {{"no_such\r\nx: y", 1}, {"wish", 2}}).dump());
    ASSERT_EQ(response.status, 200) << path << response.body;
    ASSERT_NE(response.Find("x-tactus-ignored"), nullptr) << path;
    EXPECT_EQ(*response.Find("x-tactus-ignored"), "no_such??x: y, wish");
    EXPECT_EQ(response.Find("x"), nullptr);
    EXPECT_EQ(Post(path, body.dump()).Find("x-tactus-ignored"), nullptr);
  }
  const auto tools = Post("/v1/responses", With(kResponse, {{"tools", {{{"type", "web_search"}}}}}).dump());
  EXPECT_EQ(*tools.Find("x-tactus-ignored"), "tools[0] (web_search)");
  const auto stream = Stream("/v1/chat/completions", With(chat, {{"stream", true}, {"wish", 1}}).dump());
  EXPECT_EQ(*stream->response.Find("x-tactus-ignored"), "wish");
}

TEST_F(ApisTest, StrictFieldsRefuseIgnoredFields) {
  ServeOptions options;
  options.strict_fields = true;
  StartServer(options);
  EXPECT_EQ(Ask("/v1/responses", With(kResponse, {{"wish", 1}}), 400)["error"]["param"], "wish");
  EXPECT_EQ(Ask("/v1/messages", With(kMessage, {{"wish", 1}}), 400)["error"]["type"], "invalid_request_error");
  Ask("/v1/messages", kMessage);
}

TEST_F(ApisTest, ErrorOfATooLongPromptHasTheWordsOfEachApi) {
  StartServer();
  const json chat = {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"max_tokens", 5000}};
  const json error = Ask("/v1/chat/completions", chat, 400)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_NE(error["message"].get<std::string>().find("maximum context length is 4096 tokens"), std::string::npos)
      << error;
  EXPECT_EQ(Ask("/v1/responses", With(kResponse, {{"max_output_tokens", 5000}}), 400)["error"]["code"],
            "context_length_exceeded");
  const json messages = Ask("/v1/messages", With(kMessage, {{"max_tokens", 5000}}), 400)["error"];
  EXPECT_NE(messages["message"].get<std::string>().find("exceed context limit"), std::string::npos) << messages;
}

TEST_F(ApisTest, RoutesAnswerWithoutTheVersionAndWithASlash) {
  StartServer();
  Ask("/responses", kResponse);
  Ask("/messages/", kMessage);
  EXPECT_EQ(Ask("/messages", {{"messages", "x"}}, 400)["type"], "error") << "the error has the format of that API";
}

TEST_F(ApisTest, MessagesRouteAnswersInItsFormat) {
  StartServer();
  const json a = Ask("/v1/messages", kMessage, 200, {{"anthropic-version", "2023-06-01"}});
  EXPECT_TRUE(a["id"].get<std::string>().starts_with("msg_"));
  EXPECT_EQ(a["content"], json::parse(R"([{"type": "text", "text": "Hello wor"}])"));
  EXPECT_EQ(a["stop_reason"], "max_tokens");
  EXPECT_EQ(a["usage"]["input_tokens"].get<int>() + a["usage"]["cache_read_input_tokens"].get<int>(), 5);
  const auto stream = Stream("/v1/messages", With(kMessage, {{"stream", true}}).dump());
  EXPECT_EQ(json::parse(stream->events.front())["type"], "message_start");
  EXPECT_EQ(json::parse(stream->events.back())["type"], "message_stop");
  EXPECT_EQ(Ask("/v1/messages/count_tokens", {{"messages", kMessage["messages"]}}), json({{"input_tokens", 5}}));
}

TEST_F(ApisTest, ErrorsHaveTheFormatOfTheApi) {
  StartServer();
  const json openai = Ask("/v1/responses", With(kResponse, {{"max_output_tokens", 100000}}), 400);
  EXPECT_EQ(openai["error"]["param"], "max_output_tokens");
  for (const auto& [body, status, type] :
       {std::tuple(With(kMessage, {{"temperature", 9}}), 400, "invalid_request_error"),
        std::tuple(With(kMessage, {{"model", "other"}}), 404, "not_found_error"),
        std::tuple(With(kMessage, {{"max_tokens", 100000}}), 400, "invalid_request_error")}) {
    const json error = Ask("/v1/messages", body, status);
    EXPECT_EQ(error["type"], "error");
    EXPECT_EQ(error["error"]["type"], type);
    EXPECT_FALSE(error["error"]["message"].get<std::string>().empty());
  }
  const auto wrong = Call("GET", "/v1/messages");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(json::parse(wrong.body)["type"], "error");
}

TEST_F(ApisTest, AKeyMayComeAsAnthropicsClientSendsIt) {
  ServeOptions options;
  options.api_key = {"right"};
  StartServer(options);
  EXPECT_EQ(Ask("/v1/messages", kMessage, 401)["error"]["type"], "authentication_error");
  Ask("/v1/messages", kMessage, 401, {{"x-api-key", "wrong"}});
  Ask("/v1/messages", kMessage, 200, {{"x-api-key", "right"}});
  Ask("/v1/chat/completions", kMessage, 200, {{"x-api-key", "right"}});
  // With both headers, OpenAI's Authorization header decides.
  Ask("/v1/messages", kMessage, 401, {{"x-api-key", "right"}, {"Authorization", "Bearer wrong"}});
}

TEST_F(ApisTest, AScheduleIsFoundByTheAnswersId) {
  StartServer();
  for (const auto& [path, body] : {std::pair("/v1/responses", kResponse), std::pair("/v1/messages", kMessage)}) {
    const std::string id = Ask(path, body)["id"];
    const auto explained = Call("GET", "/v1/requests/" + id + "/explain");
    EXPECT_EQ(explained.status, 200) << explained.body;
  }
}

TEST_F(ApisTest, OpenApiDocumentHasEveryRouteAndMethod) {
  StartServer();
  const auto response = Call("GET", "/openapi.json");
  ASSERT_EQ(response.status, 200);
  const json document = json::parse(response.body);
  EXPECT_EQ(document["openapi"], "3.1.0");
  EXPECT_EQ(document["paths"].size(), serve::Routes().size());
  std::set<std::string> summaries;
  for (const serve::RouteEntry& route : serve::Routes()) {
    const json& path = document["paths"][route.path];
    for (const auto& [bit, method] :
         {std::pair(serve::kGet, "get"), std::pair(serve::kPost, "post"), std::pair(serve::kDelete, "delete")}) {
      ASSERT_EQ((route.methods & bit) != 0, path.contains(method)) << route.path << " " << method;
      if ((route.methods & bit) == 0) continue;
      EXPECT_TRUE(path[method]["responses"].contains("200")) << route.path;
      const std::string summary = path[method]["summary"];
      EXPECT_FALSE(summary.empty()) << route.path << " " << method << " is not in the table of serve/openapi.cc";
      EXPECT_TRUE(summaries.insert(summary).second) << route.path << ": '" << summary << "' is another route's";
    }
  }
  const json& chat = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"];
  EXPECT_EQ(chat["schema"]["required"], json({"messages"}));
  EXPECT_EQ(chat["schema"]["properties"]["temperature"]["maximum"], 2);
}

}  // namespace
}  // namespace tactus
