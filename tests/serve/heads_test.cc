// Decisions based on a request's head, and headers of answers: methods, types, keys, names, states.
#include <set>

#include "base/json.h"
#include "server_fixture.h"

namespace tactus {
namespace {

using json = SortedJson;

class HeadsTest : public ServerTest {
 protected:
  static std::string Body() { return R"({"prompt":"abc","max_tokens":1})"; }
  int WithType(const std::string& type) {
    return Call("POST", "/v1/completions", Body(), {{"Content-Type", type}}).status;
  }
  http::HttpResponse WithEncoding(const std::string& encoding) {
    return Post("/v1/completions", Body(), {{"Content-Encoding", encoding}});
  }
  json Error(const http::HttpResponse& response) { return json::parse(response.body)["error"]; }
};

TEST_F(HeadsTest, BodiesAreJsonAndNotCompressed) {
  StartServer();
  for (const char* type :
       {"application/json", "APPLICATION/JSON", "application/json; charset=utf-8", "application/json ;charset=utf-8"}) {
    EXPECT_EQ(WithType(type), 200) << type;
  }
  for (const char* type : {"text/json", "application/jsonx", "application/jso", "text/plain; application/json", ";"})
    EXPECT_EQ(WithType(type), 415) << type;
  EXPECT_EQ(Call("POST", "/v1/completions", Body()).status, 415);  // no Content-Type
  EXPECT_EQ(WithEncoding("identity").status, 200);
  EXPECT_EQ(WithEncoding("Identity").status, 200);
  EXPECT_EQ(WithEncoding("gzip").status, 415);
  const json type = Error(Call("POST", "/v1/completions", Body(), {{"Content-Type", "text/plain"}}));
  EXPECT_EQ(type["param"], "Content-Type");
  EXPECT_EQ(type["message"], "Content-Type: give application/json");
  const json encoding = Error(WithEncoding("gzip"));
  EXPECT_EQ(encoding["param"], "Content-Encoding");
  EXPECT_EQ(encoding["message"], "Content-Encoding: compressed bodies are not supported");
}

TEST_F(HeadsTest, MethodsAreNamedPerRoute) {
  StartServer();
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages",
                           "/v1/messages/count_tokens", "/tokenize", "/detokenize"}) {
    for (const char* method : {"GET", "PUT", "DELETE"}) {
      const auto refused = Call(method, path);
      EXPECT_EQ(refused.status, 405) << method << path;
      EXPECT_EQ(*refused.Find("Allow"), "POST, OPTIONS");
      EXPECT_EQ(Error(refused)["message"], std::string(path) + " takes POST, not " + method);
    }
    EXPECT_EQ(Call("HEAD", path).status, 405);
    const auto options = Call("OPTIONS", path);
    EXPECT_EQ(options.status, 204);
    EXPECT_EQ(*options.Find("Allow"), "POST, OPTIONS");
  }
  for (const char* path : {"/v1/models", "/v1/models/fake", "/health", "/ready", "/metrics", "/version", "/"}) {
    EXPECT_EQ(Call("GET", path).status, 200) << path;
    EXPECT_EQ(Call("HEAD", path).status, 200) << path;
    EXPECT_EQ(Call("GET", std::string(path) + "?x=1").status, 200) << path;
    const auto refused = Call("POST", path, "{}");
    EXPECT_EQ(refused.status, 405) << path;
    EXPECT_EQ(*refused.Find("Allow"), "GET, HEAD, OPTIONS");
    EXPECT_EQ(Error(refused)["message"], std::string(path) + " takes GET, not POST");
    EXPECT_EQ(*Call("OPTIONS", path).Find("Allow"), "GET, HEAD, OPTIONS");
  }
  for (const char* path : {"/v1", "/v1/model", "/healthy", "/tokenise", "//"}) {
    const auto unknown = Call("GET", path);
    EXPECT_EQ(unknown.status, 404) << path;
    EXPECT_EQ(Error(unknown)["type"], "not_found_error");
  }
  EXPECT_EQ(Error(Call("GET", "/nothing"))["message"], "/nothing does not exist here");
  for (const char* path : {"/v1/models/", "/models", "/models/", "/health/", "/v1/models/fake/"})
    EXPECT_EQ(Call("GET", path).status, 200) << path;
  const auto embeddings = Post("/v1/embeddings", "{}");
  EXPECT_EQ(embeddings.status, 404);
  EXPECT_NE(embeddings.body.find("embeddings are not built"), std::string::npos) << embeddings.body;
  EXPECT_NE(Call("GET", "/fleet/replicas").body.find("it is a router's"), std::string::npos);
}

TEST_F(HeadsTest, ModelNamesMayBePercentEncoded) {
  engine_.mutable_model().name = "org/a b%";
  StartServer();
  for (const char* name : {"org/a%20b%", "org%2Fa%20b%", "org%2fa%20b%25", "%6Frg/a%20b%"})
    EXPECT_EQ(Call("GET", std::string("/v1/models/") + name).status, 200) << name;
  const auto wrong = Call("GET", "/v1/models/org%2Ga%2");  // not hexadecimal digits: kept as they are
  EXPECT_EQ(wrong.status, 404);
  EXPECT_EQ(Error(wrong)["message"], "model 'org%2Ga%2' does not exist here; this server has 'org/a b%'");
  EXPECT_EQ(Error(wrong)["param"], "model");
}

TEST_F(HeadsTest, AnswersWithoutAKeyNameTheHeaders) {
  ServeOptions options;
  options.api_key = {"secret"};
  StartServer(options);
  const auto refused = Call("GET", "/v1/models");
  EXPECT_EQ(refused.status, 401);
  ASSERT_NE(refused.Find("WWW-Authenticate"), nullptr);
  EXPECT_EQ(*refused.Find("WWW-Authenticate"), "Bearer");
  EXPECT_EQ(Error(refused)["type"], "authentication_error");
  EXPECT_EQ(Error(refused)["message"],
            "missing or wrong API key; send it as 'Authorization: Bearer <key>' or 'x-api-key: <key>'");
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"})
    EXPECT_EQ(Post(path, "{}").status, 401) << path;
  for (const char* path : {"/health", "/ready", "/metrics", "/version", "/"})
    EXPECT_EQ(Call("GET", path).status, 200) << path;
  EXPECT_EQ(Call("GET", "/v1/models", {}, {{"Authorization", "Bearer secret"}}).Find("WWW-Authenticate"), nullptr);
}

TEST_F(HeadsTest, RequestIds) {
  StartServer();
  EXPECT_EQ(*Call("GET", "/health", {}, {{"X-Request-Id", std::string(256, 'x')}}).Find("X-Request-Id"),
            std::string(256, 'x'));
  const auto refused = Call("GET", "/health", {}, {{"X-Request-Id", std::string(257, 'x')}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(Error(refused)["message"], "X-Request-Id: 257 bytes; give 1 to 256 visible ASCII characters");
  EXPECT_EQ(Error(refused)["param"], "X-Request-Id");
  EXPECT_EQ(refused.Find("X-Request-Id")->size(), 32u);  // a generated id
  const auto bad = Post("/v1/completions", "{", {{"X-Request-Id", "mine"}});
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(*bad.Find("X-Request-Id"), "mine");  // errors have it too
  EXPECT_EQ(*Post("/tokenize", "{", {{"X-Request-Id", "mine"}}).Find("X-Request-Id"), "mine");
}

TEST_F(HeadsTest, StatesAreNamed) {
  StartServer({}, false);
  auto ready = Call("GET", "/ready");
  EXPECT_EQ(ready.body, R"({"status":"loading"})");
  EXPECT_EQ(*ready.Find("Retry-After"), "1");
  EXPECT_EQ(Call("GET", "/health").body, R"({"status":"ok"})");
  const auto early = Post("/v1/completions", Body());
  EXPECT_EQ(early.status, 503);
  EXPECT_EQ(*early.Find("Retry-After"), "1");
  EXPECT_EQ(Error(early)["message"], "the server is not ready: loading");
  EXPECT_EQ(Error(early)["type"], "overloaded_error");
  server_->SetEngine(&engine_, EngineOptions());
  ready = Call("GET", "/ready");
  EXPECT_EQ(ready.body, R"({"status":"ready"})");
  EXPECT_EQ(ready.Find("Retry-After"), nullptr);
  engine_.SetHealthy(false);
  EXPECT_EQ(Call("GET", "/ready").body, R"({"status":"unhealthy"})");
  EXPECT_EQ(Call("GET", "/health").body, R"({"status":"unhealthy"})");
  EXPECT_EQ(Error(Post("/v1/completions", Body()))["message"], "the server is not ready: unhealthy");
  engine_.SetHealthy(true);
  server_->StopAdmission();
  EXPECT_EQ(Call("GET", "/ready").body, R"({"status":"draining"})");
  EXPECT_EQ(Call("GET", "/health").status, 200);
  EXPECT_EQ(Error(Call("GET", "/v1/models"))["message"], "the server is not ready: draining");
}

TEST_F(HeadsTest, ContentTypesOfAnswers) {
  StartServer();
  const auto page = Call("GET", "/");
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  EXPECT_EQ(page.Find("Content-Security-Policy")->rfind("default-src 'none'; script-src 'self'; style-src 'self'", 0),
            0u)
      << *page.Find("Content-Security-Policy");
  const auto version = Call("GET", "/version");
  EXPECT_EQ(version.content_type, "application/json");
  EXPECT_EQ(json::parse(version.body)["batch_invariant"], true);
  const std::string metrics = Call("GET", "/metrics").body;
  for (const char* line :
       {"# TYPE tactus_http_connections gauge\ntactus_http_connections ",
        "# TYPE tactus_http_connections_total counter\ntactus_http_connections_total 3\n",
        "# TYPE tactus_http_connections_refused_total counter\ntactus_http_connections_refused_total 0\n",
        "# TYPE tactus_http_exchanges gauge\ntactus_http_exchanges 1\n",
        "# TYPE tactus_http_client_gone_total counter\ntactus_http_client_gone_total 0\n",
        "tactus_http_responses_total{code=\"200\"} 2\n"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line << "not in\n" << metrics;
  }
}

TEST_F(HeadsTest, FingerprintsFollowModelWeightsAndKernels) {
  const auto fingerprint = [&] {
    StartServer();
    const json answer = json::parse(Post("/v1/completions", Body()).body);
    server_.reset();  // its threads read the model, which is changed next
    return answer["system_fingerprint"].get<std::string>();
  };
  const std::string first = fingerprint();
  EXPECT_EQ(first, fingerprint());
  engine_.mutable_model().kernels = "other";
  const std::string kernels = fingerprint();
  engine_.mutable_model().weight_format = "other";
  const std::string weights = fingerprint();
  engine_.mutable_model().name = "other";
  const std::string name = fingerprint();
  EXPECT_EQ(std::set<std::string>({first, kernels, weights, name}).size(), 4u);
}

TEST_F(HeadsTest, TheEnginesDefaultsReachTheRequests) {
  engine_options_.default_max_tokens = 7;
  engine_.mutable_model().generation_defaults.temperature = 0.25f;
  StartServer();
  Post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})");
  const Request request = engine_.submitted().at(0);
  EXPECT_EQ(request.stop.max_tokens, 7);
  EXPECT_EQ(request.sampling.temperature, 0.25f);
}

TEST_F(HeadsTest, ThePagesFilesAreServedWithTheirTypesAndTags) {
  StartServer();
  const std::string page = Call("GET", "/").body;
  for (const auto& [name, type] : {std::pair("page.css", "text/css; charset=utf-8"),
                                   {"main.js", "text/javascript; charset=utf-8"},
                                   {"icon.svg", "image/svg+xml"}}) {
    const std::string path = std::string("/page/") + name;
    EXPECT_NE(page.find('"' + path + '"'), std::string::npos) << "index.html does not use " << path;
    const auto file = Call("GET", path);
    EXPECT_EQ(file.status, 200) << path;
    EXPECT_EQ(file.content_type, type) << path;
    EXPECT_FALSE(file.body.empty()) << path;
    const std::string tag = *file.Find("ETag");
    const auto again = Call("GET", path, {}, {{"If-None-Match", tag}});
    EXPECT_EQ(again.status, 304) << path;
    EXPECT_EQ(again.body, "") << path;
    EXPECT_EQ(*again.Find("ETag"), tag) << path;
    EXPECT_EQ(Call("GET", path, {}, {{"If-None-Match", "\"other\""}}).status, 200) << path;
  }
  EXPECT_EQ(Call("GET", "/page/other.js").status, 404);
  EXPECT_EQ(Call("GET", "/page/../routes.cc").status, 404);
}

TEST_F(HeadsTest, CreatedStaysTheSame) {
  StartServer();
  EXPECT_EQ(Call("GET", "/v1/models").body, Call("GET", "/v1/models").body);
}

}  // namespace
}  // namespace tactus
