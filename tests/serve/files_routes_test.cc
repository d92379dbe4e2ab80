// Files and batches over HTTP: routes, methods, owners, refusals before the body is read.
#include <filesystem>

#include "base/json.h"
#include "http/raw_socket.h"
#include "server_fixture.h"

namespace tactus {
namespace {

using json = SortedJson;

class FilesRoutesTest : public ServerTest {
 protected:
  FilesRoutesTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("tactus_files_" + std::string(test->name()) + "_" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    options_.files_dir = folder_.string();
  }
  ~FilesRoutesTest() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  static http::Headers Bearer(const std::string& key) {
    return key.empty() ? http::Headers() : http::Headers{{"Authorization", "Bearer " + key}};
  }
  http::HttpResponse Upload(const std::string& content, const std::string& key = {}, http::Headers more = {}) {
    http::Headers headers = Bearer(key);
    headers.emplace_back("Content-Type", "multipart/form-data; boundary=B");
    headers.insert(headers.end(), more.begin(), more.end());
    return Call("POST", "/v1/files",
                "--B\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
                "--B\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n" +
                    content + "\r\n--B--\r\n",
                headers);
  }
  // An upload whose body is never sent.
  std::unique_ptr<RawSocket> OpenUpload(const std::string& key = {}) {
    auto socket = std::make_unique<RawSocket>(server_->port());
    socket->Send("POST /v1/files HTTP/1.1\r\nHost: localhost\r\n" +
                 (key.empty() ? "" : "Authorization: Bearer " + key + "\r\n") +
                 "Content-Type: multipart/form-data; boundary=B\r\nContent-Length: 100000\r\n"
                 "Expect: 100-continue\r\n\r\n");
    EXPECT_NE(socket->ReadUntil("\r\n\r\n").find("100 Continue"), std::string::npos);
    return socket;
  }
  std::string IdOf(const http::HttpResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body, nullptr, false).value("id", "none");
  }
  static std::string Line(const std::string& id) {
    return json{{"custom_id", id},
                {"method", "POST"},
                {"url", "/v1/completions"},
                {"body", {{"prompt", "ab"}, {"max_tokens", 3}}}}
               .dump() +
           "\n";
  }
  std::string CreateBatch(const std::string& file, const std::string& key = {}) {
    return IdOf(
        Post("/v1/batches",
             json{{"input_file_id", file}, {"endpoint", "/v1/completions"}, {"completion_window", "24h"}}.dump(),
             Bearer(key)));
  }
  json AwaitEnd(const std::string& batch, const std::string& key = {}) {
    for (int looks = 0; looks < 4000; ++looks) {
      const json now = json::parse(Call("GET", "/v1/batches/" + batch, {}, Bearer(key)).body);
      if (now["status"] == "completed" || now["status"] == "cancelled" || now["status"] == "failed") return now;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    throw std::runtime_error("batch " + batch + " did not end within 20 s");
  }

  ServeOptions options_;
  std::filesystem::path folder_;
};

TEST_F(FilesRoutesTest, AFileGoesInAndOut) {
  StartServer(options_);
  const std::string id = IdOf(Upload("content"));
  const auto content = Call("GET", "/v1/files/" + id + "/content");
  EXPECT_EQ(content.body, "content");
  EXPECT_EQ(*content.Find("Content-Type"), "application/octet-stream");
  EXPECT_EQ(*content.Find("X-Content-Type-Options"), "nosniff");
  EXPECT_NE(content.Find("X-Request-Id"), nullptr);
  const auto head = Call("HEAD", "/v1/files/" + id + "/content");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_EQ(json::parse(Call("GET", "/v1/files?limit=1").body)["data"][0]["id"], id);
  EXPECT_EQ(json::parse(Call("DELETE", "/v1/files/" + id).body)["deleted"], true);
  for (const char* path : {"", "/content"}) EXPECT_EQ(Call("GET", "/v1/files/" + id + path).status, 404) << path;
  EXPECT_EQ(Call("DELETE", "/v1/files/" + id).status, 404);
}

TEST_F(FilesRoutesTest, ABatchRunsOnTheServersEngine) {
  StartServer(options_);
  const std::string batch = CreateBatch(IdOf(Upload(Line("a") + Line("b"))));
  const json done = AwaitEnd(batch);
  EXPECT_EQ(done["status"], "completed") << done;
  EXPECT_EQ(done["model"], "fake");
  EXPECT_EQ(done["request_counts"], json({{"total", 2}, {"completed", 2}, {"failed", 0}}));
  const std::string output = Call("GET", "/v1/files/" + done["output_file_id"].get<std::string>() + "/content").body;
  EXPECT_NE(output.find("\"text\":\"Hello wor\""), std::string::npos) << output;
  EXPECT_EQ(json::parse(Call("GET", "/v1/batches").body)["data"].size(), 1u);
  EXPECT_EQ(engine_.submitted().at(0).client, "batch");
  const std::string metrics = Call("GET", "/metrics").body;
  EXPECT_NE(metrics.find("tactus_batches{status=\"completed\"} 1\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("tactus_batch_lines_total{result=\"completed\"} 2\n"), std::string::npos) << metrics;
}

TEST_F(FilesRoutesTest, ACancelNeedsNoBody) {
  StartServer(options_);
  engine_.Hold();
  const std::string batch = CreateBatch(IdOf(Upload(Line("a"))));
  EXPECT_EQ(json::parse(Call("POST", "/v1/batches/" + batch + "/cancel").body)["status"], "cancelling");
  EXPECT_EQ(AwaitEnd(batch)["status"], "cancelled");
  EXPECT_EQ(Call("POST", "/v1/batches/" + batch + "/cancel", {}, {{"Content-Type", "text/plain"}}).status, 415);
  EXPECT_EQ(Call("POST", "/v1/batches/batch_none/cancel").status, 404);
}

TEST_F(FilesRoutesTest, MethodsAndPaths) {
  StartServer(options_);
  const auto refused = [this](const char* method, const char* path) {
    const auto response = Call(method, path);
    const std::string* allow = response.Find("Allow");
    return std::to_string(response.status) + (allow ? " " + *allow : "");
  };
  EXPECT_EQ(refused("DELETE", "/v1/files"), "405 GET, HEAD, POST, OPTIONS");
  EXPECT_EQ(refused("POST", "/v1/files/file-1"), "405 GET, HEAD, DELETE, OPTIONS");
  EXPECT_EQ(refused("DELETE", "/v1/batches/batch_1"), "405 GET, HEAD, OPTIONS");
  EXPECT_EQ(refused("GET", "/v1/batches/batch_1/cancel"), "405 POST, OPTIONS");
  EXPECT_EQ(refused("DELETE", "/v1/models/fake"), "405 GET, HEAD, OPTIONS");
  for (const char* path : {"/v1/files/a/b", "/v1/files/a/content/x", "/v1/batches//cancel"})
    EXPECT_EQ(refused("GET", path), "404") << path;
  for (const char* path : {"/v1/files/..%2Fbatches.db/content", "/v1/files/%2e%2e/content", "/v1/batches/%00"})
    EXPECT_EQ(refused("GET", path), "404") << path;
  EXPECT_EQ(Call("GET", "/v1/files?limit=0").status, 400);
  EXPECT_EQ(Call("GET", "/v1/batches?after=batch_none").status, 400);
}

TEST_F(FilesRoutesTest, ErrorsWithoutAFolderNameTheFlag) {
  options_.files_dir.clear();
  StartServer(options_);
  for (const char* path : {"/v1/files", "/v1/batches", "/v1/files/file-1/content"}) {
    const auto refused = Call("GET", path);
    EXPECT_EQ(refused.status, 501) << path;
    EXPECT_NE(refused.body.find("--files-dir"), std::string::npos) << refused.body;
  }
  EXPECT_EQ(Upload("x").status, 501);
}

TEST_F(FilesRoutesTest, AKeySeesOnlyItsOwnFilesAndBatches) {
  options_.api_key = {"one", "two"};
  StartServer(options_);
  const std::string file = IdOf(Upload(Line("a"), "one"));
  const std::string batch = CreateBatch(file, "one");
  const json done = AwaitEnd(batch, "one");
  for (const std::string& path : {"/v1/files/" + file, "/v1/files/" + file + "/content", "/v1/batches/" + batch,
                                  "/v1/files/" + done["output_file_id"].get<std::string>() + "/content"}) {
    EXPECT_EQ(Call("GET", path, {}, Bearer("one")).status, 200) << path;
    EXPECT_EQ(Call("GET", path, {}, Bearer("two")).status, 404) << path;
    EXPECT_EQ(Call("GET", path).status, 401) << path;
  }
  EXPECT_EQ(Call("DELETE", "/v1/files/" + file, {}, Bearer("two")).status, 404);
  EXPECT_EQ(json::parse(Call("GET", "/v1/files", {}, Bearer("two")).body)["data"].size(), 0u);
  const Request line = engine_.submitted().at(0);
  EXPECT_EQ(line.owner, "key 1");
  EXPECT_NE(line.cache_salt, "") << "its prefixes must not be shared with other keys";
}

TEST_F(FilesRoutesTest, BodiesOfRefusedUploadsAreNotRead) {
  options_.api_key = {"key"};
  options_.max_file_size.bytes = options_.files_quota.bytes = 1 << 20;
  StartServer(options_);
  const auto told = [this](const std::string& headers) {
    RawSocket socket(server_->port());
    socket.Send("POST /v1/files HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
    return socket.ReadAll().substr(9, 3);
  };
  const std::string form = "Content-Type: multipart/form-data; boundary=B\r\n", length = "Content-Length: 100000\r\n";
  const std::string key = "Authorization: Bearer key\r\n";
  EXPECT_EQ(told(form + length), "401");
  EXPECT_EQ(told(key + "Content-Type: application/json\r\n" + length), "415");
  EXPECT_EQ(told(key + "Content-Type: multipart/form-data\r\n" + length), "415");
  EXPECT_EQ(told(key + form + length + "Content-Encoding: gzip\r\n"), "415");
  EXPECT_EQ(told(key + form + length + "Origin: http://evil.example\r\n"), "403");
  EXPECT_EQ(told(key + form + "Content-Length: 10000000000\r\n"), "413");
}

TEST_F(FilesRoutesTest, OpenUploadsOfAClientAreLimited) {
  StartServer(options_);
  std::vector<std::unique_ptr<RawSocket>> open;
  for (int i = 0; i < 16; ++i) open.push_back(OpenUpload());
  EXPECT_EQ(Upload("x").status, 429);
  EXPECT_EQ(Call("GET", "/v1/files").status, 200);
  open.back()->Reset();
  for (int looks = 0; Upload("x").status != 200; ++looks) ASSERT_LT(looks, 5000) << "its place is not given back";
}

TEST_F(FilesRoutesTest, OpenUploadsOfAllClientsAreLimited) {
  options_.api_key = {"a", "b", "c", "d", "e"};
  StartServer(options_);
  std::vector<std::unique_ptr<RawSocket>> open;
  for (int i = 0; i < 64; ++i) open.push_back(OpenUpload(options_.api_key[static_cast<size_t>(i / 16)]));
  EXPECT_EQ(Upload("x", "e").status, 429);
  open.back()->Reset();
  for (int looks = 0; Upload("x", "e").status != 200; ++looks) ASSERT_LT(looks, 5000) << "its place is not given back";
}

TEST_F(FilesRoutesTest, APageWithAnAllowedOriginMayUpload) {
  options_.allowed_origins = {"https://good.example"};
  StartServer(options_);
  EXPECT_EQ(Upload("x", {}, {{"Origin", "https://good.example"}}).status, 200);
  EXPECT_EQ(Upload("x", {}, {{"Origin", "https://evil.example"}}).status, 403);
}

TEST_F(FilesRoutesTest, InvalidOptionsAreRefused) {
  options_.files_quota.bytes = options_.max_file_size.bytes - 1;
  options_.port = 0;
  EXPECT_EQ(serve::ApiServer::Listen(options_, SystemClock()).status().param(), "files-quota");
}

}  // namespace
}  // namespace tactus
