// Fetch against a small hub over the project's own server. tests/e2e/hub_test.py has the faults of networks and disks.
#include "hub/fetch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "http/server.h"
#include "hub/cache.h"
#include "hub/digest.h"

namespace tactus::hub {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

std::string Sha256Of(const std::string& data) {
  const auto digest = Digest::ForHash(std::string(64, '0'), 0);
  digest->Add(data.data(), data.size());
  return digest->Hex();
}

// The hub under /api and /org/m/resolve, the contents under /content, on one port.
class SmallHub final : public http::Handler {
 public:
  SmallHub() {
    auto server = http::Server::Listen({}, this, SystemClock());
    if (!server.ok()) throw std::runtime_error(server.status().message());
    server_ = std::move(*server);
    server_->Start();
    url_ = fmt::format("http://127.0.0.1:{}", server_->port());
  }
  ~SmallHub() override { server_->Stop(); }
  const std::string& url() const { return url_; }

  struct Script {
    std::map<std::string, std::string> files;  // by path
    std::map<std::string, std::string> sent;   // another content than the listed one
    int cuts = 0;                              // answers that end after half of their bytes
    bool ranges = true;
    std::deque<int> listing_statuses;  // instead of the listing, one for each request
  };
  void Set(const std::function<void(Script&)>& change) {
    std::lock_guard lock(mutex_);
    change(script_);
  }
  std::vector<std::string> Requests() {
    std::lock_guard lock(mutex_);
    return std::exchange(requests_, {});
  }

  std::optional<http::HttpResponse> CheckHead(const http::HttpRequest&) override { return std::nullopt; }
  http::HttpResponse ErrorResponse(int status, const std::string& message) override {
    return {.status = status, .body = message};
  }
  void Handle(std::shared_ptr<http::Exchange> exchange) override {
    const http::HttpRequest& r = exchange->request();
    const std::string* range = r.Find("range");
    const std::string* token = r.Find("authorization");
    std::lock_guard lock(mutex_);
    requests_.push_back(
        fmt::format("{}{}{}", r.path, range == nullptr ? "" : " " + *range, token == nullptr ? "" : " " + *token));
    constexpr std::string_view kContent = "/content/";
    const std::string resolve = fmt::format("/org/m/resolve/{}/", kCommit);
    if (r.path == "/api/models/org/m/revision/main") return Listing(*exchange);
    if (r.path.starts_with(resolve))
      return exchange->Respond({.status = 302, .headers = {{"Location", "/content/" + r.path.substr(resolve.size())}}});
    if (r.path.starts_with(kContent)) return Content(*exchange, r.path.substr(kContent.size()), range);
    exchange->Respond({.status = 404});
  }

 private:
  void Listing(http::Exchange& exchange) {
    if (auto& statuses = script_.listing_statuses; !statuses.empty()) {
      exchange.Respond({.status = statuses.front(), .headers = {{"Retry-After", "0"}}});
      statuses.pop_front();
      return;
    }
    std::string siblings;
    for (const auto& [path, data] : script_.files) {
      siblings += fmt::format(R"({}{{"rfilename": "{}", "size": {}, "lfs": {{"sha256": "{}"}}}})",
                              siblings.empty() ? "" : ", ", path, data.size(), Sha256Of(data));
    }
    exchange.Respond({.body = fmt::format(R"({{"sha": "{}", "siblings": [{}]}})", kCommit, siblings)});
  }
  void Content(http::Exchange& exchange, const std::string& path, const std::string* range) {
    const std::string& data = script_.sent.count(path) > 0 ? script_.sent[path] : script_.files[path];
    size_t first = 0, last = data.size() - 1;
    http::HttpResponse answer{.content_type = "", .headers = {{"ETag", "\"" + Sha256Of(data) + "\""}}};
    if (range != nullptr && script_.ranges) {
      std::sscanf(range->c_str(), "bytes=%zu-%zu", &first, &last);
      answer.status = 206;
      answer.headers.emplace_back("Content-Range", fmt::format("bytes {}-{}/{}", first, last, data.size()));
    }
    answer.body = data.substr(first, last - first + 1);
    if (script_.cuts == 0) return exchange.Respond(std::move(answer));
    --script_.cuts;
    const std::string half = answer.body.substr(0, answer.body.size() / 2);
    answer.body.clear();
    exchange.StartStream(std::move(answer));
    exchange.Write(half);
    exchange.Abort();
  }

  std::mutex mutex_;
  Script script_;
  std::vector<std::string> requests_;
  std::unique_ptr<http::Server> server_;
  std::string url_;
};

class FetchTest : public testing::Test {
 protected:
  void SetUp() override {
    settings_.endpoint = hub_.url();
    settings_.cache = testing::TempDir() + "/fetch";
    settings_.first_wait_ns = kMillisecond;
    settings_.connections = 2;
    fs::remove_all(settings_.cache);
    options_.update = true;
    hub_.Set([this](SmallHub::Script& script) { script.files["m-Q8_0.gguf"] = data_; });
  }
  Result<Fetched> Get(const std::string& name = "hf:org/m") {
    return Fetch(**ParseRemoteName(name, settings_.endpoint), settings_, SystemClock(), options_);
  }
  void FailListing(const std::deque<int>& statuses) {
    hub_.Set([&statuses](SmallHub::Script& script) { script.listing_statuses = statuses; });
  }
  static std::string TextOf(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  const std::string data_ = std::string(3 << 20, 'q') + "end";
  SmallHub hub_;
  Settings settings_;
  FetchOptions options_;
};

TEST_F(FetchTest, AModelArrivesInPiecesAndIsFoundAgain) {
  Progress last;
  options_.events.progress = [&last](const Progress& progress) { last = progress; };
  const auto fetched = Get();
  ASSERT_TRUE(fetched.ok()) << fetched.status().message();
  EXPECT_EQ(TextOf(fetched->path), data_);
  EXPECT_EQ(fetched->commit, kCommit);
  EXPECT_EQ(fetched->bytes, (3 << 20) + 3);
  EXPECT_EQ(fetched->downloaded_bytes, fetched->bytes);
  EXPECT_EQ(last.done_bytes, fetched->bytes);
  EXPECT_EQ(last.total_bytes, fetched->bytes);
  hub_.Requests();
  const auto again = Get();
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->downloaded_bytes, 0);
  EXPECT_EQ(hub_.Requests().size(), 1);
  options_.update = false;
  ASSERT_TRUE(Get().ok());
  EXPECT_TRUE(hub_.Requests().empty());
}

TEST_F(FetchTest, CutAnswersContinue) {
  hub_.Set([](SmallHub::Script& script) { script.cuts = 3; });
  const auto fetched = Get();
  ASSERT_TRUE(fetched.ok()) << fetched.status().message();
  EXPECT_EQ(TextOf(fetched->path), data_);
}

TEST_F(FetchTest, AServerWithoutRangesSendsTheWholeFile) {
  hub_.Set([](SmallHub::Script& script) { script.ranges = false; });
  const auto fetched = Get();
  ASSERT_TRUE(fetched.ok()) << fetched.status().message();
  EXPECT_EQ(TextOf(fetched->path), data_);
}

TEST_F(FetchTest, AWrongContentIsNotKept) {
  const std::string wrong(data_.size(), 'w');
  hub_.Set([&wrong](SmallHub::Script& script) { script.sent["m-Q8_0.gguf"] = wrong; });
  const auto fetched = Get();
  EXPECT_EQ(fetched.status().code(), StatusCode::kDataLoss);
  for (const std::string& content : {data_, wrong})
    EXPECT_NE(fetched.status().message().find(Sha256Of(content)), std::string::npos) << fetched.status().message();
  EXPECT_TRUE(fs::is_empty(RepositoryFolder(settings_.cache, "org/m").path() + "/blobs"));
}

TEST_F(FetchTest, TextsComeBeforeWeightsAndMayRefuseThem) {
  hub_.Set([](SmallHub::Script& script) {
    script.files = {{"config.json", "{}"}, {"tokenizer.json", "{}"}, {"model.safetensors", "weights"}};
  });
  std::string folder;
  options_.before_weights = [&folder](const std::string& path) {
    folder = path;
    return Unimplemented("an odd model");
  };
  EXPECT_EQ(Get().status().code(), StatusCode::kUnimplemented);
  EXPECT_TRUE(fs::exists(folder + "/config.json"));
  EXPECT_FALSE(fs::exists(folder + "/model.safetensors"));
  options_.before_weights = nullptr;
  const auto fetched = Get();
  ASSERT_TRUE(fetched.ok()) << fetched.status().message();
  EXPECT_EQ(fetched->path, folder);
  EXPECT_EQ(fetched->bytes, 2 + 2 + 7);
}

TEST_F(FetchTest, FaultsOfTheHubAreTriedAgainAndThenReported) {
  FailListing({500, 503});
  EXPECT_TRUE(Get().ok());
  FailListing(std::deque<int>(6, 503));
  std::vector<std::string> notes;
  options_.events.note = [&notes](std::string_view text) { notes.emplace_back(text); };
  const auto kept = Get();  // it is in the cache
  EXPECT_TRUE(kept.ok());
  ASSERT_EQ(notes.size(), 1);
  EXPECT_NE(notes[0].find("status 503"), std::string::npos) << notes[0];
  fs::remove_all(settings_.cache);
  FailListing(std::deque<int>(6, 503));
  EXPECT_EQ(Get().status().code(), StatusCode::kUnavailable);
  FailListing({404});
  EXPECT_EQ(Get().status().code(), StatusCode::kNotFound);
}

TEST_F(FetchTest, ATokenIsForTheHubAndNotForOtherUrls) {
  settings_.token = "hf_x";
  settings_.token_source = "HF_TOKEN";
  settings_.url_folder = settings_.cache + "/urls";
  ASSERT_TRUE(Get().ok());
  for (const std::string& request : hub_.Requests())
    EXPECT_NE(request.find("Bearer hf_x"), std::string::npos) << request;
  settings_.endpoint = "https://hub.example";
  ASSERT_TRUE(Get(hub_.url() + "/content/m-Q8_0.gguf").ok());
  for (const std::string& request : hub_.Requests()) EXPECT_EQ(request.find("Bearer"), std::string::npos) << request;
}

TEST_F(FetchTest, OfflineSendsNothing) {
  settings_.offline = true;
  const auto fetched = Get();
  EXPECT_EQ(fetched.status().code(), StatusCode::kNotFound);
  EXPECT_NE(fetched.status().message().find("HF_HUB_OFFLINE"), std::string::npos);
  EXPECT_TRUE(hub_.Requests().empty());
}

}  // namespace
}  // namespace tactus::hub
