// Requests that move between two servers with a real (dummy) model; the test acts as router. The client gets the same
// bytes from both as from one server. Peers with another secret or model, mute peers, and peers that disappear
// half-way.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <regex>
#include <thread>

#include "base/fleet_secret.h"
#include "base/json.h"
#include "compute/exec/make_backend.h"
#include "compute/model/catalog.h"
#include "compute/model/loader.h"
#include "engine/create_engine.h"
#include "http/access.h"
#include "http/client.h"
#include "http/raw_socket.h"
#include "late_engine.h"
#include "serve/api_server.h"
#include "serve/moves/migration_text.h"
#include "support/slow_backend.h"
#include "support/tiny_config.h"
#include "time_limit.h"

namespace tactus {
namespace {
constexpr DurationNs kLimitNs = 30 * kSecond;
constexpr const char* kSecret = "the secret of this fleet";

struct Replica {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<serve::ApiServer> server;
  std::string url() const { return fmt::format("http://127.0.0.1:{}", server->port()); }
};

class FleetTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::filesystem::temp_directory_path() / ("tactus_fleet_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "config.json") << test::kTinyConfig;
    WriteSecret("secret", kSecret);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }
  static std::string WriteSecret(const std::string& name, const std::string& text, mode_t mode = 0600) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text << "\n";
    chmod(path.c_str(), mode);
    return path;
  }
  static EngineOptions Options() {
    EngineOptions o;
    o.model = folder_.string();
    o.served_model_name = {"dummy"};
    o.load_format = "dummy";
    o.seed = 1;
    o.threads = 1;
    o.max_num_seqs = 8;
    o.max_model_len = 4096;
    o.kv_cache_memory.bytes = 8 << 20;
    o.swap_space.bytes = 2 << 20;
    o.kv_secret = kSecret;
    return o;
  }
  static ServeOptions Serve() {
    ServeOptions o;
    o.port = 0;
    o.kv_secret_file = (folder_ / "secret").string();
    o.migration_timeout.ns = 30 * kSecond;  // a sanitizer beside other work needs more than 5 s for one move
    return o;
  }
  static Replica Start(const EngineOptions& options, const ServeOptions& serve,
                       std::chrono::microseconds pause = std::chrono::microseconds(1500), bool late = false) {
    Replica r;
    auto description = compute::DescribeModel(options.model);
    EXPECT_TRUE(description.ok()) << description.status().ToString();
    auto backend = compute::MakeBackend(options, *description, SystemClock());
    EXPECT_TRUE(backend.ok()) << backend.status().ToString();
    engine::EngineParts parts{.clock = &SystemClock(), .stopwatch = nullptr, .backend = nullptr};
    parts.backend = std::make_unique<SlowBackend>(std::move(*backend), pause);
    auto engine = engine::CreateEngine(options, {}, std::move(parts));
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    r.engine = late ? std::make_unique<LateEngine>(std::move(*engine)) : std::move(*engine);
    auto server = serve::ApiServer::Listen(serve, SystemClock());
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    r.server = std::move(*server);
    r.server->SetEngine(r.engine.get(), options);
    return r;
  }

  static std::string Body(int max_tokens, bool stream, const std::string& more = "") {
    return fmt::format(
        R"({{"model": "dummy", "prompt": "Once upon a time there was a fleet.", "max_tokens": {}, )"
        R"("ignore_eos": true, "temperature": 1.1, "seed": 7, "frequency_penalty": 0.4, "stream": {}{}}})",
        max_tokens, stream, more);
  }
  // HTTP/1.0: the answer arrives unchunked, until the server closes.
  static std::string Head(const std::string& path, const std::string& body, const std::string& more) {
    return fmt::format("POST {} HTTP/1.0\r\nContent-Type: application/json\r\n{}Content-Length: {}\r\n\r\n{}", path,
                       more, body.size(), body);
  }
  static std::string Routed(const std::string& id) {
    return fmt::format("x-tactus-route: 1\r\nX-Request-Id: {}\r\n", id);
  }
  static std::string BodyOf(const std::string& answer) {
    const size_t end = answer.find("\r\n\r\n");
    return end == std::string::npos ? "no head: " + answer : answer.substr(end + 4);
  }
  static std::string Sign(const std::string& path, const std::string& body, const std::string& secret = kSecret) {
    return SignFleetRequest(FleetKeysOf(secret), {"POST", path, body}, UnixSeconds(), http::RandomBits());
  }
  static http::HttpResponse Post(const Replica& to, const std::string& path, const std::string& body,
                                 const std::string& signature) {
    http::Headers headers;
    if (!signature.empty()) headers.emplace_back(kFleetHeader, signature);
    auto response = http::Fetch({"127.0.0.1", to.server->port(), "/"}, {"POST", path, std::move(headers), body},
                                kLimitNs, SystemClock());
    EXPECT_TRUE(response.ok()) << path << ": " << response.status().ToString();
    return response.ok() ? *response : http::HttpResponse{.status = 0};
  }
  static Json Migrate(const Replica& from, const Json& what) {
    const std::string body = what.dump();
    const auto response = Post(from, "/fleet/migrate", body, Sign("/fleet/migrate", body));
    EXPECT_EQ(response.status, 200) << response.body;
    return response.status == 200 ? Json::parse(response.body) : Json::object();
  }
  static void MoveOne(const Replica& from, const Json& what) {
    const Json answer = Migrate(from, what);
    ASSERT_EQ(answer.value("moved", Json::array()).size(), 1u) << answer;
  }
  // The rest of a moved answer.
  static std::string GoOn(const Replica& at, const std::string& ticket) {
    const std::string path = "/fleet/streams/" + ticket;
    RawSocket socket(at.server->port());
    socket.Send(Head(path, "", fmt::format("{}: {}\r\n", kFleetHeader, Sign(path, ""))));
    return socket.ReadAll();
  }
  // Waits, because the stats of a pass are published after its events.
  static void AwaitNothingHeld(const Replica& r) {
    const auto held = [&] {
      const EngineStats stats = r.engine->Stats();
      return stats.kv_blocks_in_use + stats.swap_blocks_used;
    };
    for (int i = 0; i < 3000 && held() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(held(), 0) << "KV or host blocks are still held";
  }
  // The text without creation times.
  static std::string Timeless(const std::string& text) {
    return std::regex_replace(text, std::regex("\"created\":\\d+"), "\"created\":0");
  }
  static void ExpectSame(const std::string& got, const std::string& expected) {
    const std::string a = Timeless(got), b = Timeless(expected);
    if (a == b) return;
    const auto at = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
    const size_t from = at < 200 ? 0 : at - 200;
    ADD_FAILURE() << a.size() << " bytes arrived instead of " << b.size() << "; they differ at byte " << at << ":\n"
                  << a.substr(from, 400) << "\ninstead of\n"
                  << b.substr(from, 400);
  }
  static Json Marker(const std::string& body) {
    const size_t at = body.rfind(": migrated ");
    return at == std::string::npos ? Json::object() : Json::parse(body.substr(at + 11));
  }
  static std::string Alone(const std::string& body) {
    Replica alone = Start(Options(), Serve(), std::chrono::microseconds(0));
    RawSocket socket(alone.server->port());
    socket.Send(Head("/v1/completions", body, Routed("same-id")));
    return BodyOf(socket.ReadAll());
  }

  static inline std::filesystem::path folder_;
};

TEST_F(FleetTest, AMovedStreamEqualsThatOfOneServer) {
  const test::TimeLimit limit("a moved stream does not come to its end");
  for (const char* more : {"", R"(, "logprobs": 2, "stream_options": {"include_usage": true})"}) {
    SCOPED_TRACE(more);
    Replica a = Start(Options(), Serve()), b = Start(Options(), Serve());
    const std::string body = Body(300, true, more);
    const std::string expected = Alone(body);
    ASSERT_TRUE(expected.ends_with("data: [DONE]\n\n"));
    RawSocket client(a.server->port());
    client.Send(Head("/v1/completions", body, Routed("same-id")));
    std::string first = client.ReadUntil("data: ", 20);
    const Json moved = Migrate(a, {{"request_id", "same-id"}, {"to", b.url()}});
    ASSERT_EQ(moved["moved"].size(), 1u) << moved;
    EXPECT_GT(moved["moved"][0]["blocks"], 2);
    first += client.ReadAll();
    const std::string here = BodyOf(first);
    const Json marker = Marker(here);
    ASSERT_EQ(marker.value("to", ""), b.url()) << "it ended with: " << here.substr(here.size() - 200);
    const std::string there = BodyOf(GoOn(b, marker["ticket"]));
    const std::string whole = here.substr(0, here.rfind(": migrated ")) + there;
    ExpectSame(whole, expected);
    std::smatch created;
    const std::regex field("\"created\":\\d+");
    ASSERT_TRUE(std::regex_search(whole, created, field));
    const std::string same = created.str();
    for (std::sregex_iterator i(whole.begin(), whole.end(), field), end; i != end; ++i)
      ASSERT_EQ(i->str(), same) << "the halves have different creation times";
    EXPECT_EQ(here.find("[DONE]"), std::string::npos);
    AwaitNothingHeld(a);
    AwaitNothingHeld(b);
    EXPECT_EQ(b.engine->Stats().migrated_in, 1);
    EXPECT_EQ(b.engine->Stats().recomputed_tokens, 0);
  }
}

TEST_F(FleetTest, AMovedWholeAnswerComesFromTheOtherServer) {
  const test::TimeLimit limit("a moved answer does not come");
  Replica a = Start(Options(), Serve()), b = Start(Options(), Serve());
  const std::string body = Body(300, false, R"(, "logprobs": 1)");
  const std::string expected = Alone(body);
  RawSocket client(a.server->port());
  client.Send(Head("/v1/completions", body, Routed("same-id")));
  Json moved;
  for (int i = 0; i < 500 && (moved.empty() || moved["moved"].empty()); ++i) {
    if (a.engine->Stats().generation_tokens > 10) moved = Migrate(a, {{"count", 1}, {"to", b.url()}});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(moved["moved"].size(), 1u) << moved;
  const std::string first = client.ReadAll();
  std::smatch header;
  ASSERT_TRUE(std::regex_search(first, header, std::regex("x-tactus-migrated: (\\S+) (\\S+)"))) << first;
  EXPECT_EQ(header[1], b.url());
  EXPECT_EQ(BodyOf(first), "");
  ExpectSame(BodyOf(GoOn(b, header[2])), expected);
}

TEST_F(FleetTest, AStreamMayMoveThereAndBack) {
  const test::TimeLimit limit("a stream that moves twice does not come to its end");
  Replica a = Start(Options(), Serve()), b = Start(Options(), Serve());
  const std::string body = Body(400, true);
  const std::string expected = Alone(body);
  RawSocket client(a.server->port());
  client.Send(Head("/v1/completions", body, Routed("same-id")));
  std::string whole = client.ReadUntil("data: ", 10);
  ASSERT_NO_FATAL_FAILURE(MoveOne(a, {{"all", true}, {"to", b.url()}}));
  whole = BodyOf(whole + client.ReadAll());
  const Json first = Marker(whole);
  whole.resize(whole.rfind(": migrated "));
  const std::string path = "/fleet/streams/" + first["ticket"].get<std::string>();
  RawSocket second(b.server->port());
  second.Send(Head(path, "", fmt::format("{}: {}\r\n", kFleetHeader, Sign(path, ""))));
  std::string more = second.ReadUntil("data: ", 10);
  ASSERT_NO_FATAL_FAILURE(MoveOne(b, {{"request_id", "same-id"}, {"to", a.url()}}));
  more = BodyOf(more + second.ReadAll());
  const Json back = Marker(more);
  ASSERT_EQ(back.value("to", ""), a.url());
  whole += more.substr(0, more.rfind(": migrated "));
  whole += BodyOf(GoOn(a, back["ticket"]));
  ExpectSame(whole, expected);
}

TEST_F(FleetTest, OnlyMembersMaySendRequests) {
  const test::TimeLimit limit("a refusal does not come");
  Replica a = Start(Options(), Serve());
  const std::string body = R"({"all": true, "to": "http://127.0.0.1:1"})";
  EXPECT_EQ(Post(a, "/fleet/migrate", body, "").status, 401);
  const auto wrong = Post(a, "/fleet/migrate", body, Sign("/fleet/migrate", body, "another secret of enough bytes"));
  EXPECT_EQ(wrong.status, 401);
  EXPECT_NE(wrong.body.find("--kv-secret-file"), std::string::npos) << wrong.body;
  EXPECT_EQ(Post(a, "/fleet/migrate", body, Sign("/fleet/import", body)).status, 401) << "signed for another path";
  EXPECT_EQ(Post(a, "/fleet/migrate", body, Sign("/fleet/migrate", body + " ")).status, 401) << "another body";
  const std::string once = Sign("/fleet/migrate", body);
  EXPECT_EQ(Post(a, "/fleet/migrate", body, once).status, 200);
  const auto twice = Post(a, "/fleet/migrate", body, once);
  EXPECT_EQ(twice.status, 401);
  EXPECT_NE(twice.body.find("already been used"), std::string::npos) << twice.body;
  const std::string old = SignFleetRequest(FleetKeysOf(kSecret), {"POST", "/fleet/migrate", body}, UnixSeconds() - 3600,
                                           http::RandomBits());
  EXPECT_EQ(Post(a, "/fleet/migrate", body, old).status, 401);
  EXPECT_EQ(Post(a, "/fleet/migrate", body, "v1 garbage").status, 401);
  const auto ticket = Post(a, "/fleet/streams/00", "", Sign("/fleet/streams/00", ""));
  EXPECT_EQ(ticket.status, 404) << ticket.body;
  EXPECT_EQ(Post(a, "/fleet/streams/00", "", "").status, 401);
  ServeOptions no_fleet = Serve();
  no_fleet.kv_secret_file.clear();
  Replica single = Start(Options(), no_fleet);
  EXPECT_EQ(Post(single, "/fleet/migrate", body, Sign("/fleet/migrate", body)).status, 404);
}

// Only the head of an unsigned request is read, and at most its route's limit of a member's request.
TEST_F(FleetTest, ABodyIsReadOnlyForMembersAndWithinItsRoutesLimit) {
  const test::TimeLimit limit("a refusal waits for a body");
  Replica a = Start(Options(), Serve());
  const auto answer_to_head = [&](const std::string& path, const std::string& signature, int64_t bytes) {
    RawSocket socket(a.server->port());
    const std::string head = signature.empty() ? "" : fmt::format("{}: {}\r\n", kFleetHeader, signature);
    socket.Send(fmt::format("POST {} HTTP/1.0\r\n{}Content-Length: {}\r\n\r\n", path, head, bytes));
    return socket.ReadAll();  // the body is never sent
  };
  for (const char* path : {"/fleet/import", "/fleet/migrate", "/fleet/streams/00"}) {
    SCOPED_TRACE(path);
    EXPECT_NE(answer_to_head(path, "", 1000).find(" 401 "), std::string::npos);
    EXPECT_NE(answer_to_head(path, Sign(path, "x", "another secret of enough bytes"), 1000).find(" 401 "),
              std::string::npos);
  }
  for (const char* path : {"/fleet/migrate", "/fleet/streams/00"}) {
    const std::string refusal = answer_to_head(path, Sign(path, "x"), (64 << 10) + 1);
    EXPECT_NE(refusal.find(" 413 "), std::string::npos) << path << ": " << refusal;
    EXPECT_NE(refusal.find("65536 bytes (the limit of this route)"), std::string::npos) << refusal;
  }
}

// The result of a move that fails: the stream must be complete, and `why` is the error.
class FailingMove {
 public:
  FailingMove(const std::string& expected, std::string whole, std::string why)
      : expected_(expected), whole_(std::move(whole)), why_(std::move(why)) {}
  const std::string& why() const { return why_; }
  bool stream_is_whole() const { return expected_ == whole_; }

 private:
  const std::string expected_, whole_, why_;
};

class FleetFailureTest : public FleetTest {
 protected:
  FailingMove Fail(const Replica& a, const std::string& to) {
    const std::string body = Body(200, true);
    const std::string expected = Alone(body);
    RawSocket client(a.server->port());
    client.Send(Head("/v1/completions", body, Routed("same-id")));
    std::string whole = client.ReadUntil("data: ", 5);
    const Json said = Migrate(a, {{"request_id", "same-id"}, {"to", to}});
    std::string why = "it moved";
    if (!said["failed"].empty()) why = said["failed"][0]["why"];
    whole = BodyOf(whole + client.ReadAll());
    return {Timeless(expected), Timeless(whole), why};
  }
};

TEST_F(FleetFailureTest, AMoveToAnotherSecretFormatOrModelFailsAndTheStreamContinues) {
  const test::TimeLimit limit("a refused move does not end");
  Replica a = Start(Options(), Serve());
  ServeOptions stranger = Serve();
  stranger.kv_secret_file = WriteSecret("other", "quite another secret");
  {
    Replica b = Start(Options(), stranger);
    const FailingMove move = Fail(a, b.url());
    EXPECT_TRUE(move.stream_is_whole());
    EXPECT_NE(move.why().find("not signed with this fleet's secret"), std::string::npos) << move.why();
    EXPECT_EQ(b.engine->Stats().migrated_in, 0);
  }
  const auto refused = [&](EngineOptions other) {
    Replica b = Start(other, Serve());
    const FailingMove move = Fail(a, b.url());
    EXPECT_TRUE(move.stream_is_whole());
    AwaitNothingHeld(b);
    return move.why();
  };
  EngineOptions other = Options();
  other.block_size = 32;
  EXPECT_NE(refused(other).find("block size: here '32', there '16'"), std::string::npos);
  other = Options();
  other.kv_cache_dtype = "int8";
  EXPECT_NE(refused(other).find("KV dtype"), std::string::npos);
  other = Options();
  other.seed = 2;
  EXPECT_NE(refused(other).find("weights"), std::string::npos);
  other = Options();
  other.swap_space.bytes = 4 << 10;
  EXPECT_NE(refused(other).find("--swap-space"), std::string::npos);
}

// The destination has room only for short sequences, and the source tries a long one first.
TEST_F(FleetFailureTest, ARefusedSequenceDelaysNoOthers) {
  const test::TimeLimit limit("a command about several sequences does not end");
  Replica a = Start(Options(), Serve());
  EngineOptions small = Options();
  small.swap_space.bytes = 40 * a.engine->migration()->format().block_bytes;
  Replica b = Start(small, Serve());
  std::vector<std::unique_ptr<RawSocket>> clients;
  const auto begin = [&](const std::string& id, bool is_long) {
    std::string body = Body(2000, true, fmt::format(R"(, "priority": {})", is_long ? 5 : 0));
    if (is_long) body.replace(body.find("Once"), 4, std::string(1200, 'x'));
    clients.push_back(std::make_unique<RawSocket>(a.server->port()));
    clients.back()->Send(Head("/v1/completions", body, Routed(id)));
    clients.back()->ReadUntil("data: ", 2);
  };
  const auto ids = [](const Json& list) {
    std::string all;
    for (const Json& entry : list) all += entry["request_id"].get<std::string>() + " ";
    return all;
  };
  begin("long", true);
  for (const char* id : {"s1", "s2"}) begin(id, false);
  const Json first = Migrate(a, {{"all", true}, {"to", b.url()}});
  EXPECT_EQ(ids(first["failed"]), "long ") << first;
  EXPECT_EQ(first["moved"].size(), 2u) << first;
  begin("s3", false);
  const Json second = Migrate(a, {{"count", 1}, {"to", b.url()}});
  EXPECT_EQ(ids(second["moved"]), "s3 ") << second << "\na recently failed request comes last";
  for (const char* id : {"l2", "l3", "l4"}) begin(id, true);
  EXPECT_EQ(Migrate(a, {{"all", true}, {"to", b.url()}})["failed"].size(), 3u)
      << "it stops after three consecutive failures";
  EngineOptions other = Options();
  other.seed = 2;
  Replica stranger = Start(other, Serve());
  EXPECT_EQ(Migrate(a, {{"all", true}, {"to", stranger.url()}})["failed"].size(), 1u)
      << "the destination accepts no sequence at all";
}

TEST_F(FleetFailureTest, AMissingOrMutePeerDoesNotHarmTheStream) {
  const test::TimeLimit limit("a move to a mute peer does not end");
  ServeOptions impatient = Serve();
  impatient.migration_timeout.ns = 300 * kMillisecond;
  Replica a = Start(Options(), impatient);
  // Accepts connections and never answers.
  const int mute = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(mute, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(mute, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string url = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
  const FailingMove deaf = Fail(a, url);  // it is not listening yet
  EXPECT_TRUE(deaf.stream_is_whole());
  EXPECT_NE(deaf.why().find("cannot connect"), std::string::npos) << deaf.why();
  ASSERT_EQ(listen(mute, 8), 0);
  const FailingMove silent = Fail(a, url);
  EXPECT_TRUE(silent.stream_is_whole());
  EXPECT_NE(silent.why().find("timed out"), std::string::npos) << silent.why();
  close(mute);
  AwaitNothingHeld(a);
}

// The destination of a half-open connection: the received part of an import is dropped.
TEST_F(FleetTest, ASilentImportIsDropped) {
  const test::TimeLimit limit("a silent import is kept");
  ServeOptions impatient = Serve();
  impatient.migration_timeout.ns = 200 * kMillisecond;
  Replica b = Start(Options(), impatient);
  const MigrationFormat& format = b.engine->migration()->format();
  const auto send = [&](const std::string& message) {
    return Post(b, "/fleet/import", message, Sign("/fleet/import", message));
  };
  Json begin = serve::JsonOf(format);
  begin["kind"] = "begin";
  begin["version"] = serve::kMigrationVersion;
  begin["blocks"] = 3;
  const auto begun = send(serve::MessageOf(begin));
  ASSERT_EQ(begun.status, 200) << begun.body;
  const std::string import = Json::parse(begun.body)["import"];
  const std::string block(static_cast<size_t>(format.block_bytes), 'k');
  const Json head = {{"kind", "blocks"}, {"import", import}, {"first_block", 0}, {"blocks", 1}};
  EXPECT_EQ(send(serve::MessageOf(head, block)).status, 200);
  EXPECT_EQ(send(serve::MessageOf(head, "short")).status, 400);
  Json far = head;
  far["first_block"] = 1 << 30;
  EXPECT_EQ(send(serve::MessageOf(far, block)).status, 400);
  AwaitNothingHeld(b);
  EXPECT_EQ(send(serve::MessageOf(head, block)).status, 404);
  begin["version"] = 99;
  const auto newer = send(serve::MessageOf(begin));
  EXPECT_EQ(newer.status, 400);
  EXPECT_NE(newer.body.find("version"), std::string::npos) << newer.body;
  EXPECT_EQ(send("no message").status, 400);
  EXPECT_EQ(send("{\"kind\": \"nothing\"}\n").status, 400);
}

TEST_F(FleetTest, AStreamThatNoRouterRequestsEnds) {
  const test::TimeLimit limit("a stream that is not asked for runs on");
  ServeOptions impatient = Serve();
  impatient.ticket_timeout.ns = 300 * kMillisecond;
  Replica a = Start(Options(), Serve()), b = Start(Options(), impatient);
  RawSocket client(a.server->port());
  client.Send(Head("/v1/completions", Body(3000, true), Routed("same-id")));
  std::string first = client.ReadUntil("data: ", 5);
  ASSERT_NO_FATAL_FAILURE(MoveOne(a, {{"all", true}, {"to", b.url()}}));
  first += client.ReadAll();
  for (int i = 0; i < 1000 && b.engine->Stats().finished_cancelled == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(b.engine->Stats().finished_cancelled, 1);
  AwaitNothingHeld(b);
  const std::string late = GoOn(b, Marker(BodyOf(first))["ticket"]);
  EXPECT_NE(late.find("404"), std::string::npos) << late;
}

TEST_F(FleetTest, ADisconnectAfterAMoveEndsTheStream) {
  const test::TimeLimit limit("what moved runs on without its client");
  Replica a = Start(Options(), Serve()), b = Start(Options(), Serve());
  RawSocket client(a.server->port());
  client.Send(Head("/v1/completions", Body(3000, true), Routed("same-id")));
  std::string first = client.ReadUntil("data: ", 5);
  ASSERT_NO_FATAL_FAILURE(MoveOne(a, {{"all", true}, {"to", b.url()}}));
  first += client.ReadAll();
  const std::string path = "/fleet/streams/" + Marker(BodyOf(first))["ticket"].get<std::string>();
  {
    RawSocket rest(b.server->port());
    rest.Send(Head(path, "", fmt::format("{}: {}\r\n", kFleetHeader, Sign(path, ""))));
    rest.ReadUntil("data: ", 3);
  }
  for (int i = 0; i < 1000 && b.engine->Stats().finished_cancelled == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(b.engine->Stats().finished_cancelled, 1);
}

// A router with a slow client requests the rest of the stream late.
TEST_F(FleetTest, AStreamWaitsForItsRouterLongerThanAMoveMayBeSilent) {
  const test::TimeLimit limit("a stream that is asked for late does not come");
  ServeOptions impatient = Serve();
  impatient.migration_timeout.ns = 2 * kSecond;  // a busy machine needs a second for the move itself
  Replica a = Start(Options(), Serve()), b = Start(Options(), impatient);
  RawSocket client(a.server->port());
  client.Send(Head("/v1/completions", Body(1000, true), Routed("same-id")));
  std::string first = client.ReadUntil("data: ", 5);
  ASSERT_NO_FATAL_FAILURE(MoveOne(a, {{"all", true}, {"to", b.url()}}));
  first += client.ReadAll();
  std::this_thread::sleep_for(std::chrono::seconds(4));
  const std::string late = GoOn(b, Marker(BodyOf(first))["ticket"]);
  EXPECT_TRUE(late.ends_with("data: [DONE]\n\n")) << late.substr(0, 500);
}

// The tokens of a request may reach its client before the thread that submits it knows its handle.
TEST_F(FleetTest, AMoveWaitsForARequestWhoseSubmissionIsInProgress) {
  const test::TimeLimit limit("a move does not see the end of a submission");
  Replica a = Start(Options(), Serve(), std::chrono::microseconds(1500), true), b = Start(Options(), Serve());
  auto& late = static_cast<LateEngine&>(*a.engine);
  late.Hold();
  RawSocket client(a.server->port());
  client.Send(Head("/v1/completions", Body(3000, true), Routed("same-id")));
  const std::string first = client.ReadUntil("data: ", 2);
  auto answer = std::async(std::launch::async, [&] { return Migrate(a, {{"all", true}, {"to", b.url()}}); });
  answer.wait_for(std::chrono::milliseconds(300));  // a move that does not wait has found nothing by then
  late.Release();
  const Json moved = answer.get();
  ASSERT_EQ(moved.value("moved", Json::array()).size(), 1u) << "the move missed a running request: " << moved;
  EXPECT_EQ(Marker(BodyOf(first + client.ReadAll())).value("to", ""), b.url());
}

// A client without a router could not follow a move.
TEST_F(FleetTest, RequestsWithoutARouterStay) {
  const test::TimeLimit limit("a request that stays does not come to its end");
  Replica a = Start(Options(), Serve()), b = Start(Options(), Serve());
  RawSocket client(a.server->port());
  client.Send(Head("/v1/completions", Body(100, true), "X-Request-Id: same-id\r\n"));
  std::string first = client.ReadUntil("data: ", 5);
  const Json moved = Migrate(a, {{"all", true}, {"to", b.url()}});
  EXPECT_TRUE(moved["moved"].empty()) << moved;
  EXPECT_TRUE(moved["failed"].empty()) << moved;
  const std::string body = R"({"request_id": "same-id", "to": ")" + b.url() + "\"}";
  EXPECT_EQ(Post(a, "/fleet/migrate", body, Sign("/fleet/migrate", body)).status, 404);
  first += client.ReadAll();
  EXPECT_TRUE(first.ends_with("data: [DONE]\n\n"));
}

// Disaggregation: one replica computes prompts, the other generates the answers.
TEST_F(FleetTest, HandsOverAfterTheFirstToken) {
  const test::TimeLimit limit("what is handed over does not come to its end");
  Replica decode = Start(Options(), Serve());
  ServeOptions options = Serve();
  options.hand_over_to = decode.url();
  Replica prefill = Start(Options(), options);
  const std::string body = Body(600, true);
  const std::string expected = Alone(body);
  RawSocket client(prefill.server->port());
  client.Send(Head("/v1/completions", body, Routed("same-id")));
  const std::string here = BodyOf(client.ReadAll());
  const Json marker = Marker(here);
  ASSERT_EQ(marker.value("to", ""), decode.url()) << here.substr(0, 2000);
  const std::string whole = here.substr(0, here.rfind(": migrated ")) + BodyOf(GoOn(decode, marker["ticket"]));
  ExpectSame(whole, expected);
  EXPECT_LT(prefill.engine->Stats().generation_tokens, 600) << "the prefill replica generated the answer";
}

TEST_F(FleetTest, AnInvalidSecretIsRefusedAtStart) {
  const auto refused = [&](const std::string& path) {
    ServeOptions o = Serve();
    o.kv_secret_file = path;
    const auto server = serve::ApiServer::Listen(o, SystemClock());
    return server.ok() ? std::string("taken") : server.status().message();
  };
  EXPECT_NE(refused((folder_ / "nowhere").string()).find("No such file"), std::string::npos);
  EXPECT_NE(refused(WriteSecret("short", "fifteen bytes.!")).find("it has only 15 bytes; give 16 to 4096"),
            std::string::npos);
  EXPECT_NE(refused(WriteSecret("long", std::string(5000, 'x'))).find("more than 4096 bytes"), std::string::npos);
  EXPECT_NE(refused(WriteSecret("open", kSecret, 0644)).find("chmod 600"), std::string::npos);
  EXPECT_NE(refused(folder_.string()).find("not a regular file"), std::string::npos);
  EXPECT_EQ(refused(WriteSecret("group", kSecret, 0640)), "taken");
  ServeOptions alone = Serve();
  alone.kv_secret_file.clear();
  alone.hand_over_to = "http://127.0.0.1:1";
  EXPECT_FALSE(serve::ApiServer::Listen(alone, SystemClock()).ok());
  ServeOptions no_url = Serve();
  no_url.hand_over_to = "somewhere";
  EXPECT_FALSE(serve::ApiServer::Listen(no_url, SystemClock()).ok());
}

}  // namespace
}  // namespace tactus
