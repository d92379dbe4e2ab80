// Schedules of requests for clients: the route, the header, and access by API key.

#include "base/json.h"
#include "server_fixture.h"

namespace tactus {
namespace {

using json = SortedJson;

class ExplainTest : public ServerTest {
 protected:
  static std::string Body(json extra = json::object()) {
    json body = {{"model", "fake"}, {"prompt", "abc"}, {"max_tokens", 3}};
    body.update(extra);
    return body.dump();
  }
  json Explain(const std::string& id, int expect = 200, http::Headers headers = {}) {
    const auto response = Call("GET", "/v1/requests/" + id + "/explain", {}, std::move(headers));
    EXPECT_EQ(response.status, expect) << response.body;
    return json::parse(response.body, nullptr, false);
  }
  static http::Headers Key(const std::string& key, http::Headers more = {}) {
    more.emplace_back("Authorization", "Bearer " + key);
    return more;
  }
};

TEST_F(ExplainTest, ScheduleIsFoundByEitherId) {
  StartServer();
  const json answer = json::parse(Post("/v1/completions", Body(), {{"X-Request-Id", "mine/1"}}).body);
  EXPECT_EQ(answer["id"], "cmpl-mine/1");
  EXPECT_FALSE(answer.contains("tactus_explain")) << "it was not requested";
  for (const char* id : {"mine/1", "mine%2F1", "cmpl-mine/1"}) {
    const json e = Explain(id);
    EXPECT_EQ(e["object"], "request.schedule") << id;
    EXPECT_EQ(e["id"], "mine/1");
    EXPECT_EQ(e["e2e_ms"], 3.500001);
    EXPECT_EQ(e["ttft_ms"], 2.0);
    EXPECT_EQ(e["totals_ms"], json({{"queue", 1.0}, {"prefill", 2.500001}}));
    EXPECT_EQ(e["segments"][0], json({{"cause", "queue"}, {"from_ms", 0.0}, {"to_ms", 1.0}, {"steps", 4}}));
    EXPECT_EQ(e["segments"][1]["to_ms"], 3.500001);
    EXPECT_FALSE(e.contains("sequences")) << "there is only one";
  }
}

TEST_F(ExplainTest, ScheduleOfALiveRequestIsReturned) {
  StartServer();
  engine_.Hold();
  Calls calls(url_);
  const auto recorder = calls.Post("/v1/completions", Body(), {{"X-Request-Id", "slow"}});
  calls.Start();
  engine_.AwaitSubmitted(1);
  const json e = Explain("slow");
  EXPECT_EQ(e["ended"], false);
  EXPECT_EQ(e["finish_reason"], nullptr);
  engine_.Release();
  calls.Join();
  EXPECT_EQ(Explain("slow")["finish_reason"], "length");
}

TEST_F(ExplainTest, UnknownIdsAre404WithTheNumberOfKeptSchedules) {
  StartServer();
  const json e = Explain("unknown", 404);
  EXPECT_NE(e["error"]["message"].get<std::string>().find("last 9 that ended"), std::string::npos) << e;
  EXPECT_EQ(e["error"]["param"], "id");
  EXPECT_EQ(Call("GET", "/v1/requests//explain").status, 404);
  EXPECT_EQ(Call("GET", "/v1/requests/x").status, 404);
  EXPECT_EQ(Post("/v1/requests/x/explain", "{}").status, 405);
}

TEST_F(ExplainTest, AKeyReadsOnlyItsOwnSchedules) {
  ServeOptions options;
  options.api_key = {"alice", "bob"};
  StartServer(options);
  EXPECT_EQ(Post("/v1/completions", Body({{"user", "alice's user"}}), Key("alice", {{"X-Request-Id", "a"}})).status,
            200);
  Explain("a", 401);
  Explain("a", 401, Key("mallory"));
  Explain("a", 404, Key("bob"));
  EXPECT_EQ(Explain("a", 200, Key("alice"))["id"], "a");
  // The same id from two keys means two requests.
  EXPECT_EQ(Post("/v1/completions", Body(), Key("bob", {{"X-Request-Id", "a"}})).status, 200);
  EXPECT_EQ(Explain("a", 200, Key("alice"))["request"], 1);
  EXPECT_EQ(Explain("a", 200, Key("bob"))["request"], 2);
}

TEST_F(ExplainTest, TheHeaderAddsTheScheduleToTheAnswer) {
  StartServer();
  const json answer = json::parse(Post("/v1/completions", Body(), {{"x-tactus-explain", "1"}}).body);
  ASSERT_TRUE(answer.contains("tactus_explain")) << answer;
  EXPECT_EQ(answer["tactus_explain"]["e2e_ms"], 3.500001) << answer;
  EXPECT_EQ("cmpl-" + answer["tactus_explain"]["id"].get<std::string>(), answer["id"]);
  for (const char* other : {"0", "yes", ""}) {
    EXPECT_FALSE(
        json::parse(Post("/v1/completions", Body(), {{"x-tactus-explain", other}}).body).contains("tactus_explain"))
        << other;
  }
}

TEST_F(ExplainTest, TheHeaderAddsTheScheduleToTheLastChunk) {
  StartServer();
  for (const bool usage : {false, true}) {
    json body = {{"stream", true}};
    if (usage) body["stream_options"] = {{"include_usage", true}};
    Calls calls(url_);
    const auto r = calls.Post("/v1/completions", Body(body), {{"x-tactus-explain", "1"}});
    calls.Start();
    calls.Join();
    ASSERT_GE(r->events.size(), 3u);
    EXPECT_EQ(r->events.back(), "[DONE]");
    const json last = json::parse(r->events[r->events.size() - 2]);
    ASSERT_TRUE(last.contains("tactus_explain")) << last;
    EXPECT_EQ(last["tactus_explain"]["e2e_ms"], 3.500001) << last;
    EXPECT_EQ(last["choices"], json::array());
    EXPECT_EQ(last.contains("usage"), usage) << last;
    for (size_t i = 0; i + 2 < r->events.size(); ++i)
      EXPECT_FALSE(json::parse(r->events[i]).contains("tactus_explain")) << "chunk " << i;
  }
}

TEST_F(ExplainTest, SeveralPromptsAndChoicesAreOneRequest) {
  StartServer();
  const std::string body = Body({{"prompt", json::array({"abc", "de"})}, {"n", 2}});
  const json answer =
      json::parse(Post("/v1/completions", body, {{"x-tactus-explain", "1"}, {"X-Request-Id", "many"}}).body);
  ASSERT_TRUE(answer.contains("tactus_explain")) << answer;
  const json told = answer["tactus_explain"], asked = Explain("many");
  for (const json* e : {&told, &asked}) {
    ASSERT_TRUE(e->contains("sequences")) << *e;
    ASSERT_EQ((*e)["sequences"].size(), 4u) << *e;
    EXPECT_EQ((*e)["id"], "many");
    EXPECT_EQ((*e)["sequences"][3]["prompt"], 1);
    EXPECT_EQ((*e)["sequences"][3]["choice"], 1);
    EXPECT_EQ((*e)["sequences"][3]["segments"].size(), 2u);
  }
}

TEST_F(ExplainTest, StatedObjectivesAreReported) {
  StartServer();
  const std::string body = Body({{"slo", {{"ttft_ms", 5}, {"jct_ms", 2000}}}});
  const json answer = json::parse(Post("/v1/completions", body, {{"x-tactus-explain", "1"}}).body);
  ASSERT_TRUE(answer.contains("tactus_explain")) << answer;
  EXPECT_EQ(answer["tactus_explain"]["objectives"][0],
            json({{"objective", "ttft"}, {"stated_ms", 5.0}, {"actual_ms", 2.0}, {"kept", true}}));
  EXPECT_EQ(answer["tactus_explain"]["objectives"].size(), 2u);
}

}  // namespace
}  // namespace tactus
