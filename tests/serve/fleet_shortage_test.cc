// Moves without memory, at any of their steps, over a scripted port: the sequence continues at its source, and the
// import can be continued or dropped.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>

#include "base/fleet_secret.h"
#include "base/json.h"
#include "http/access.h"
#include "serve/moves/migration_text.h"
#include "server_fixture.h"
#include "tactus/migration.h"

namespace tactus {
namespace {

using json = SortedJson;

constexpr const char* kSecret = "the secret of this fleet";

// Throws std::bad_alloc where the test requests it.
class ScarcePort final : public MigrationPort {
 public:
  const MigrationFormat& format() const override { return format_; }
  Result<KvBytes> Read(RequestHandle, int32_t, int32_t, int64_t) override {
    if (paused && scarce_when_paused) throw std::bad_alloc();
    return KvBytes{};
  }
  Result<MovingSequence> Pause(RequestHandle, int64_t) override {
    paused = true;
    MovingSequence moving;
    moving.request.prompt = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{1});
    return moving;
  }
  void Resume(RequestHandle) override {
    paused = false;
    ++resumed;
  }
  Status Leave(RequestHandle, int64_t) override { return Status(); }
  Result<uint64_t> Reserve(uint64_t, int32_t, int64_t) override { return uint64_t{1}; }
  Status Write(uint64_t, int32_t, std::string_view) override {
    if (scarce_to_write) throw std::bad_alloc();
    return Status();
  }
  Result<RequestHandle> Arrive(uint64_t, MovingSequence, std::shared_ptr<ResponseSink> sink) override {
    if (scarce_to_arrive) throw std::bad_alloc();
    if (!arrives) return InvalidArgument("it does not arrive");
    std::lock_guard lock(mutex_);
    sinks_.push_back(std::move(sink));
    return RequestHandle{1000};
  }
  void DropReservation(uint64_t) override {}
  void SetBlockBytes(int64_t bytes) { format_.block_bytes = bytes; }
  // Sends text to every arrived sequence.
  void Tell(const std::string& text) {
    std::lock_guard lock(mutex_);
    TokenDelta delta;
    delta.text = text;
    delta.tokens = {1};
    for (const auto& sink : sinks_) sink->OnDelta(delta);
  }

  std::atomic<bool> paused{false}, scarce_when_paused{false}, scarce_to_write{false}, scarce_to_arrive{false};
  std::atomic<bool> arrives{false};
  std::atomic<int> resumed{0};

 private:
  MigrationFormat format_{
      .model = "fake", .fingerprint = "print", .kv_dtype = "bf16", .block_size = 16, .block_bytes = 8};
  std::mutex mutex_;
  std::vector<std::shared_ptr<ResponseSink>> sinks_;
};

class FleetShortageTest : public ServerTest {
 protected:
  FleetShortageTest() {
    path_ = std::filesystem::temp_directory_path() / ("tactus_shortage_" + std::to_string(getpid()));
    std::ofstream(path_) << kSecret;
    chmod(path_.c_str(), 0600);
    engine_.SetMigration(&port_);
    Restart({});
  }
  void Restart(ServeOptions options) {
    server_.reset();
    options.kv_secret_file = path_.string();
    StartServer(options);
  }
  ~FleetShortageTest() override {
    engine_.Release();
    server_.reset();
    std::filesystem::remove(path_);
  }
  http::HttpResponse Signed(const std::string& path, const std::string& body) {
    return Post(path, body,
                {{kFleetHeader,
                  SignFleetRequest(FleetKeysOf(kSecret), {"POST", path, body}, UnixSeconds(), http::RandomBits())}});
  }
  http::HttpResponse Import(const json& head, std::string_view bytes = {}) {
    return Signed("/fleet/import", serve::MessageOf(head, bytes));
  }
  std::string Begin() {
    json begin = serve::JsonOf(port_.format());
    begin["kind"] = "begin";
    begin["version"] = serve::kMigrationVersion;
    begin["blocks"] = 2;
    const auto begun = Import(begin);
    EXPECT_EQ(begun.status, 200) << begun.body;
    return json::parse(begun.body).value("import", "");
  }
  http::HttpResponse Finish(const std::string& import) {
    MovingSequence moving;
    moving.request.prompt = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{256, 'a'});
    const json finish = {
        {"kind", "finish"},  {"import", import}, {"api", "completions"}, {"sequence", serve::JsonOf(moving)},
        {"request_id", "r"}, {"created", 1},     {"client", import},     {"owner", ""}};
    return Import(finish, R"({"prompt": "a", "max_tokens": 3, "stream": true})");
  }
  bool SaysMetric(const std::string& line) {
    return Call("GET", "/metrics").body.find(line + "\n") != std::string::npos;
  }

  std::filesystem::path path_;
  ScarcePort port_;
};

TEST_F(FleetShortageTest, APausedSequenceContinuesIfItsRestCannotBeSent) {
  port_.scarce_when_paused = true;
  engine_.Hold();
  Calls calls(url_);
  const auto stream = calls.Post("/v1/completions", R"({"prompt": "abc", "max_tokens": 3, "stream": true})",
                                 {{"x-tactus-route", "1"}, {"X-Request-Id", "same-id"}});
  calls.Start();
  engine_.AwaitLive(1);
  const json command = {{"request_id", "same-id"}, {"to", "http://127.0.0.1:" + std::to_string(url_.port)}};
  http::HttpResponse answer;
  for (int i = 0; i < 500 && (answer = Signed("/fleet/migrate", command.dump())).status == 404; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until the request has its handle
  EXPECT_EQ(answer.status, 503) << answer.body;
  EXPECT_FALSE(port_.paused) << "the sequence stays paused";
  EXPECT_EQ(port_.resumed, 1);
  engine_.Release();
  calls.Join();
  ASSERT_FALSE(stream->events.empty());
  EXPECT_EQ(stream->events.back(), "[DONE]");
}

TEST_F(FleetShortageTest, AnImportIsUsableAfterAFailedMessage) {
  const std::string import = Begin();
  const json blocks = {{"kind", "blocks"}, {"import", import}, {"first_block", 0}, {"blocks", 1}};
  port_.scarce_to_write = true;
  EXPECT_EQ(Import(blocks, "8 bytes!").status, 503);
  port_.scarce_to_write = false;
  const auto again = Import(blocks, "8 bytes!");
  EXPECT_EQ(again.status, 200) << again.body;

  MovingSequence moving;
  moving.request.prompt = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{256, 'a'});
  const json finish = {
      {"kind", "finish"},  {"import", import}, {"api", "completions"}, {"sequence", serve::JsonOf(moving)},
      {"request_id", "r"}, {"created", 1},     {"client", "c"},        {"owner", ""}};
  const std::string body = R"({"prompt": "a", "max_tokens": 3})";
  port_.scarce_to_arrive = true;
  const auto scarce = Import(finish, body);
  EXPECT_EQ(scarce.status, 503) << scarce.body;
  port_.scarce_to_arrive = false;
  const auto refused = Finish(import);
  EXPECT_NE(refused.body.find("it does not arrive"), std::string::npos) << refused.body;
  const auto written = Import(blocks, "8 bytes!");
  EXPECT_EQ(written.status, 200) << written.body;
}

// The bytes of answers that no router has requested yet are limited.
TEST_F(FleetShortageTest, BytesWaitingForRoutersAreBounded) {
  port_.arrives = true;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Finish(Begin()).status, 200);
  port_.Tell(std::string(20 << 20, 'x'));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // a tick or two
  EXPECT_TRUE(SaysMetric("tactus_fleet_tickets_expired_total 0")) << "40 MiB may wait";
  port_.Tell(std::string(20 << 20, 'x'));
  for (int i = 0; i < 500 && SaysMetric("tactus_fleet_tickets_expired_total 0"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(SaysMetric("tactus_fleet_tickets_expired_total 1")) << "80 MiB may not; the older one is dropped";
}

TEST_F(FleetShortageTest, SequencesWaitingForRoutersAreLimited) {
  port_.arrives = true;
  for (int i = 0; i < 1024; ++i) ASSERT_EQ(Finish(Begin()).status, 200) << i;
  json begin = serve::JsonOf(port_.format());
  begin.update({{"kind", "begin"}, {"version", serve::kMigrationVersion}, {"blocks", 2}});
  const auto refused = Import(begin);
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("1024 sequences wait for their routers"), std::string::npos) << refused.body;
}

// A message has at least one block of any size.
TEST_F(FleetShortageTest, ABlockLargerThanMaxBodyIsAccepted) {
  constexpr int64_t kBlockBytes = 3 << 20;
  port_.SetBlockBytes(kBlockBytes);
  ServeOptions options;
  options.max_body.bytes = 1 << 20;
  Restart(options);
  const json blocks = {{"kind", "blocks"}, {"import", Begin()}, {"first_block", 0}, {"blocks", 1}};
  const auto taken = Import(blocks, std::string(kBlockBytes, 'k'));
  EXPECT_EQ(taken.status, 200) << taken.body;
  const auto two = Import(blocks, std::string(2 * kBlockBytes, 'k'));
  EXPECT_EQ(two.status, 413) << two.body;
  const auto other = Post("/v1/completions", R"({"prompt": ")" + std::string(2 << 20, 'x') + "\"}");
  EXPECT_EQ(other.status, 413) << "no other client may send as much";
}

TEST_F(FleetShortageTest, ABlockLargerThanAllBodiesIsReportedAtStart) {
  port_.SetBlockBytes(3 << 20);
  ServeOptions options;
  options.max_body.bytes = options.max_body_total.bytes = 2 << 20;
  options.kv_secret_file = path_.string();
  options.port = 0;
  std::string said;
  auto server = serve::ApiServer::Listen(options, SystemClock(), [&](std::string_view line) { said += line; });
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  (*server)->SetEngine(&engine_, engine_options_);
  EXPECT_NE(said.find("a block of KV has 3145728"), std::string::npos) << said;
  EXPECT_NE(said.find("--max-body-total"), std::string::npos) << said;
}

}  // namespace
}  // namespace tactus
